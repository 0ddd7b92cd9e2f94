"""The data folder: archives are unpacked once and whole, stores belong to a tokenizer, and what is missing is named."""

import tarfile
from pathlib import Path

import pytest

from bertkit.errors import BertkitError
from bertkit.studies.data_folder import DataFolder, default_cache, unpack
from bertkit.tokenizer import Tokenizer
from tests.studies.toy_data import open_data
from tests.training.tiny import WORDS, tokenizer


def test_an_archive_is_unpacked_once(data: Path) -> None:
    folder = open_data(data)
    path = folder.task_file("toy/train.tsv")
    assert path.read_text() == (data / "made" / "toy" / "train.tsv").read_text()
    path.write_text("changed")
    assert folder.task_file("toy/train.tsv").read_text() == "changed"
    path.write_text((data / "made" / "toy" / "train.tsv").read_text())
    assert folder.task_folder("blimp") == data / "tasks" / "blimp"  # a plain folder is taken as it is
    assert not list((data / "cache" / "tasks").glob(".unpacking*"))


def test_a_broken_archive_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.tar.xz").write_bytes(b"no archive")
    with pytest.raises(BertkitError, match=r"bad\.tar\.xz cannot be unpacked"):
        unpack(tmp_path / "bad.tar.xz", tmp_path / "cache" / "bad")
    assert list((tmp_path / "cache").iterdir()) == []


def test_members_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with tarfile.open(tmp_path / "evil.tar.xz", "w:xz") as packed:
        packed.add(tmp_path / "file", "../../outside")
    with pytest.raises(BertkitError, match="cannot be unpacked"):
        unpack(tmp_path / "evil.tar.xz", tmp_path / "a" / "b")
    assert not (tmp_path / "outside").exists()


def test_a_store_belongs_to_its_tokenizer(data: Path) -> None:
    folder = open_data(data)
    other = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS], lowercase=True)
    first, second = (folder.store("validation.txt", one) for one in (tokenizer(), other))
    assert first.num_tokens > 200
    assert first.folder != second.folder
    assert folder.store("validation.txt", other).num_tokens == second.num_tokens


def test_what_is_missing_is_named(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_data(data)
    for ask, message in (
        (lambda: folder.task_file("toy/none.tsv"), "tasks/toy has no file none.tsv"),
        (lambda: folder.task_folder("squad"), r"no squad/ and no squad\.tar\.xz"),
        (lambda: folder.corpus_file("books.txt"), r"has no books\.txt"),
        (lambda: DataFolder.open(tmp_path), "neither tasks/ nor corpus/"),
    ):
        with pytest.raises(BertkitError, match=message):
            ask()
    monkeypatch.delenv("BERTKIT_DATA", raising=False)
    with pytest.raises(BertkitError, match="no data folder is named"):
        DataFolder.open()
    monkeypatch.setenv("BERTKIT_DATA", str(data))
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "own"))
    assert DataFolder.open().root == data
    assert default_cache() == tmp_path / "own"
