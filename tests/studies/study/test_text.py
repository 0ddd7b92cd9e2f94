"""Text that a study makes for itself: bounded, from the beginning of each file, and made once."""

from pathlib import Path

import pytest

from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.study.config import SmallText
from bertkit.studies.study.text import given_text, make_text
from bertkit.tokenizer import Tokenizer

WANTED = SmallText(("first.txt", "second.txt"), megabytes=0.0005, vocab_size=50)


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    corpus = tmp_path / "data" / "corpus"
    corpus.mkdir(parents=True)
    for name in ("first", "second", "validation"):
        documents = [f"the {name} cat number {number} sat on a mat .\nit slept ." for number in range(40)]
        (corpus / f"{name}.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return DataFolder.open(tmp_path / "data", tmp_path / "cache")


def test_the_beginning_of_each_file_with_a_vocabulary_of_it(folder: DataFolder, tmp_path: Path) -> None:
    made = make_text(folder, WANTED, tmp_path / "text")
    text = (tmp_path / "text" / "text.txt").read_text()
    assert 900 < len(text) < 1100
    assert "first cat number 0" in text
    assert "second cat number 0" in text
    assert "validation" not in text
    tokenizer = Tokenizer.load(made.tokenizer)
    assert tokenizer.vocab_size <= 50
    assert TokenStore.open(made.store, tokenizer).num_tokens > 100
    assert TokenStore.open(made.held_out, tokenizer).num_documents > 10
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "text").rglob("*.bin")}
    assert make_text(folder, WANTED, tmp_path / "text") == made
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "text").rglob("*.bin")} == before


def test_given_stores_need_their_vocabulary(folder: DataFolder, tmp_path: Path) -> None:
    made = make_text(folder, WANTED, tmp_path / "text")
    assert given_text(folder, made.store, made.tokenizer) == made
    with pytest.raises(BertkitError, match="--tokenizer"):
        given_text(folder, made.store, "")
