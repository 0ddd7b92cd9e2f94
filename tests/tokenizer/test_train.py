"""Learning a vocabulary: the same text gives the same ids in every process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertkit.errors import BertkitError
from bertkit.tokenizer import train_vocabulary
from tests.tokenizer.strings import PROSE, generated_strings

SCRIPT = """
import hashlib, json, sys
from bertkit.tokenizer import train_vocabulary
lines = json.load(open(sys.argv[1], encoding="utf-8"))
print(hashlib.sha256(json.dumps(train_vocabulary(lines, size=900, lowercase=True).tokens).encode()).hexdigest())
"""


def test_training_is_repeatable_across_processes(tmp_path: Path) -> None:
    lines = generated_strings(1_500, seed=41)
    path = tmp_path / "lines.json"
    path.write_text(json.dumps(lines), encoding="utf-8")
    here = train_vocabulary(lines, size=900, lowercase=True)
    digests = {hashlib.sha256(json.dumps(here.tokens).encode()).hexdigest()}
    for parallel in ("true", "false"):
        environment = os.environ | {"TOKENIZERS_PARALLELISM": parallel, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(path)]
        digests.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip())
    assert len(digests) == 1
    assert train_vocabulary(lines[::-1], size=900, lowercase=True).tokens == here.tokens, "order plays no part"


@pytest.mark.parametrize("lowercase", [True, False])
def test_what_is_learned(lowercase: bool) -> None:
    tokenizer = train_vocabulary(iter(PROSE * 3), size=350, lowercase=lowercase)
    assert tokenizer.tokens[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert tokenizer.vocab_size == 350
    assert len(set(tokenizer.tokens)) == 350
    assert any(token != token.lower() for token in tokenizer.tokens[5:]) != lowercase
    assert "the" in tokenizer
    assert tokenizer.unk_id not in tokenizer.encode(" ".join(PROSE)).ids


def test_a_small_size_is_kept() -> None:
    for size in (6, 20, 60):
        assert train_vocabulary(PROSE, size=size, lowercase=True).vocab_size <= size


def test_a_small_corpus_gives_fewer_tokens() -> None:
    assert train_vocabulary(["abc abc"], size=1000, lowercase=True).tokens[5:] == (
        "a", "b", "c", "##b", "##c", "ab", "abc",
    )  # fmt: skip


def test_nothing_to_learn_from() -> None:
    with pytest.raises(BertkitError, match="no word"):
        train_vocabulary(["", " \x00"], size=100, lowercase=True)
    with pytest.raises(BertkitError, match="no room"):
        train_vocabulary(PROSE, size=5, lowercase=True)
    with pytest.raises(BertkitError, match="surrogate"):
        train_vocabulary(["\ud800"], size=100, lowercase=True)


def test_a_script_of_many_characters_fills_the_vocabulary() -> None:
    lines = ["".join(chr(0x4E00 + (7 * n + m) % 3000) for m in range(60)) for n in range(1000)]
    tokenizer = train_vocabulary(lines, size=4000, lowercase=True)
    assert tokenizer.vocab_size == 3005
    assert tokenizer.unk_id not in {token_id for ids in tokenizer.encode_ids(lines) for token_id in ids}
    small = train_vocabulary([*lines, *["the dog"] * 99], size=2000, lowercase=True)
    assert small.vocab_size == 2000, "as many of the commonest as there is room for"
    assert "dog" in small
