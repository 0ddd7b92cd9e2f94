"""`bertkit prepare`: a store, an estimate, and refusals."""

import json
import re
import string
from pathlib import Path

import pytest

from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.tokenizer import Tokenizer
from tests.cli import running

TEXT = "The dog runs. A cat sleeps.\n\nBirds sing.\nThe dog runs. A cat sleeps.\n"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """Of a small run: a text, a tokenizer, a place for the store."""
    (tmp_path / "text.txt").write_text(TEXT)
    letters = [*string.ascii_lowercase, "."]
    tokens = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    Tokenizer.from_vocab(tokens, lowercase=True).save(tmp_path / "vocab")
    return [str(tmp_path / "text.txt"), "-t", str(tmp_path / "vocab"), "-o", str(tmp_path / "store"), "--workers", "1"]


def run(*arguments: str) -> tuple[str, str]:
    return running.run("prepare", *arguments)


def test_a_store_and_a_report(arguments: list[str], tmp_path: Path) -> None:
    out, err = run(*arguments)
    assert "in 3 sentences of 2 documents" in out
    assert "duplicates left out: 1 paragraph, 27 characters" in out
    assert "2 times: t h e" in out or "2 times: the dog runs" in out
    assert re.match(r"about \d+ characters in 1 file: \d+ tokens, ", err)
    store = TokenStore.open(tmp_path / "store", Tokenizer.load(tmp_path / "vocab"))
    store.verify()
    assert store.num_sentences == 3


def test_json_for_programs(arguments: list[str]) -> None:
    report = json.loads(run(*arguments, "--no-dedup", "--json")[0])
    assert report["num_sentences"] == 5
    assert report["num_duplicates"] == 0


def test_the_estimate_writes_nothing(arguments: list[str], tmp_path: Path) -> None:
    expected = json.loads(run(*arguments, "--estimate", "--json")[0])
    assert expected["num_files"] == 1
    assert expected["num_tokens"] > 0
    assert "on 1 core" in run(*arguments, "--estimate")[0]
    assert not (tmp_path / "store").exists()


def test_layouts(arguments: list[str], tmp_path: Path) -> None:
    run(*arguments, "--documents", "file", "--sentences", "line", "--yes")
    (shard,) = TokenStore.open(tmp_path / "store").shards
    assert (shard.num_documents, shard.num_sentences) == (1, 3)


@pytest.mark.parametrize(
    ("more", "message"),
    [(["--documents", "page"], "choose blank-line, row, file"), (["--sentences", "word"], "choose split, line")],
)
def test_refusals(arguments: list[str], more: list[str], message: str) -> None:
    with pytest.raises(BertkitError, match=message):
        run(*arguments, *more)


def test_a_store_of_nothing_is_an_error(arguments: list[str], tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"body": "The dog runs."}\n')
    with pytest.raises(BertkitError, match=r'nothing was read: 1 line .* rows\.jsonl, line 1: .* field "text"; remove'):
        run(str(rows), *arguments[1:])


def test_a_store_begun_otherwise_is_refused(arguments: list[str]) -> None:
    run(*arguments)
    with pytest.raises(BertkitError, match="begun with the option dedup=True"):
        run(*arguments, "--no-dedup")


def test_a_disk_that_is_too_small_is_seen_before(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(BertkitError, match="make room"):
        run(*arguments)
    run(*arguments, "--yes")


def test_a_refusal_prints_no_report(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "none.txt").touch()
    result = running.spawn("prepare", str(tmp_path / "none.txt"), *arguments[1:], "--json")
    assert (result.returncode, result.stdout) == (2, b"")
    assert "nothing was read" in result.stderr.decode().splitlines()[-1]
