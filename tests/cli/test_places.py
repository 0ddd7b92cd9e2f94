"""Places to write: refused before any work is done, with nothing left behind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints
from unittest.mock import patch

import pytest

from bertkit.cli import places
from bertkit.cli.main import app
from bertkit.cli.places import check_apart, check_file, check_folder
from bertkit.cli.vocab import app as vocab
from bertkit.errors import BertkitError
from tests.cli.running import refusal


@pytest.fixture
def taken(tmp_path: Path) -> Path:
    """A file of somebody's."""
    path = tmp_path / "taken"
    path.write_text("mine")
    return path


@pytest.fixture
def _no_reading() -> Iterator[None]:
    """Whoever gets as far as a model has refused too late."""
    with patch("bertkit.inference.loading.load", side_effect=AssertionError("loaded")):
        yield


def test_a_file_may_be_new_or_there_already_or_not_asked_for(taken: Path, tmp_path: Path) -> None:
    check_file(None, taken, tmp_path / "new")
    check_folder(tmp_path)
    check_folder(tmp_path / "new" / "deep")
    check_folder(Path("new"))


def test_an_empty_name_is_no_place() -> None:
    """Not the current folder, as pathlib has it: an unset variable of a script would fill that."""
    for arguments in (
        ("prepare", "a.txt", "-t", "vocab", "-o", ""),
        ("prepare", "a.txt", "-t", "", "-o", "store"),
        ("vocab", "train", "a.txt", "-o", ""),
        ("embed", "-m", "small-en", "a", "--output="),
        ("convert", "small-en", ""),
        ("doctor", "recipe.toml", ""),
        ("features", "-m", "small-en", "", "-o", "x.npy"),
        ("embed", "-m", "small-en", "-f", ""),
        ("tag", "-m", "small-en", "-f", ""),
        ("vocab", "extend", "small-en", "", "-o", "x"),
    ):
        assert "the name is empty; '.' is the current folder" in refusal(*arguments)
    assert "the name is empty" in refusal("answer", "-m", "answers-en", "-q", "a", "-f", "")
    assert "the name of a file is empty" in refusal("vocab", "train", "", "-o", "vocab")
    assert "has an empty name; give SOURCE or NAME=SOURCE" in refusal("serve", "")
    assert places.path("a/b") == Path("a/b")


def test_every_file_and_folder_of_every_command_is_asked_for_by_name() -> None:
    commands = [*app.registered_commands, *vocab.registered_commands]
    assert len(commands) > 24
    found = 0
    for command in commands:
        assert command.callback is not None
        for hint in get_type_hints(command.callback, include_extras=True).values():
            if "Path" in str(get_args(hint)[:1]):
                assert hint.__metadata__[0].parser is places.path, command.callback
                found += 1
    assert found > 24


def test_files_that_cannot_be(taken: Path, tmp_path: Path) -> None:
    for path, why in (
        (tmp_path, "Is a directory"),
        (tmp_path / "absent" / "x", "No such file or directory"),
        (taken / "x", "Not a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        with pytest.raises(BertkitError, match=f"cannot write .*: {why}; choose another place"):
            check_file(path)


def test_folders_that_cannot_be(taken: Path) -> None:
    for path in (taken, taken / "x" / "y"):
        with pytest.raises(BertkitError, match="taken is a file; choose another folder"):
            check_folder(path)


def test_places_that_are_closed(taken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the tests may run as a user who may do all
    for check, path in ((check_file, taken), (check_file, tmp_path / "new"), (check_folder, tmp_path / "new")):
        with pytest.raises(BertkitError, match="Permission denied"):
            check(path)


def test_the_input_is_no_output_by_any_name(taken: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(taken)
    check_apart(taken, None)
    check_apart(taken, tmp_path / "other")
    check_apart("-", taken)
    for output in (taken, tmp_path / "link", tmp_path / ".." / tmp_path.name / "taken"):
        with pytest.raises(BertkitError, match="is what is read"):
            check_apart(str(taken), output)


FOLDERS: list[Any] = [
    ("convert", "model", "TAKEN"),
    ("export", "-m", "model", "-o", "TAKEN"),
    ("finetune", "classification", "-m", "model", "--train", "x.csv", "-o", "TAKEN"),
    ("tune-vectors", "-m", "model", "--train", "x.csv", "-o", "TAKEN"),
    ("train-head", "x.parquet", "-o", "TAKEN"),
    ("vocab", "train", "x.txt", "-o", "TAKEN"),
    ("vocab", "extend", "model", "x.txt", "-o", "TAKEN"),
    ("prepare", "x.txt", "-t", "vocab", "-o", "TAKEN"),
    ("evaluate", "-m", "model", "--suite", "-o", "TAKEN"),
    ("study", "direction", "-o", "TAKEN"),
    ("pretrain", "RECIPE", "--out", "TAKEN"),
    ("demo", "--out", "TAKEN"),
    ("demo", "--from-scratch", "--out", "TAKEN"),
]


@pytest.mark.parametrize("arguments", FOLDERS, ids=" ".join)
def test_a_folder_that_is_a_file_is_seen_before_anything_is_read(arguments: tuple[str, ...], taken: Path) -> None:
    recipe = taken.with_name("recipe.toml")
    recipe.write_text("steps = 3\n")
    said = refusal(*({"TAKEN": str(taken), "RECIPE": str(recipe)}.get(word, word) for word in arguments))
    assert f"{taken} is a file; choose another folder" in said
    assert taken.read_text() == "mine"


FILES: list[Any] = [
    ("explain", "a", "--html", "ABSENT/x.html"),
    ("inspect", "-m", "model", "a", "--png", "x.png", "--html", "ABSENT/x.html"),
    ("words", "-m", "model", "--png", "x.png", "--html", "ABSENT/x.html"),
    ("embed", "-m", "model", "a", "-o", "ABSENT/x.npy"),
    ("features", "-m", "model", "x.txt", "-o", "ABSENT/x.npy"),
    ("predict", "-m", "model", "x.csv", "-o", "ABSENT/x.csv"),
]


@pytest.mark.usefixtures("_no_reading")
@pytest.mark.parametrize("arguments", FILES, ids=" ".join)
def test_a_file_that_cannot_be_is_seen_first_and_nothing_is_written(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "ABSENT/x." in refusal(*arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_no_reading")
@pytest.mark.parametrize("verb", ["embed", "features", "predict"])
def test_what_is_read_is_not_overwritten(verb: str, tmp_path: Path) -> None:
    ending = ".parquet" if verb == "features" else ".jsonl"
    path = tmp_path / f"mine{ending}"
    path.write_text('{"text": "a", "label": "b", "more": "c"}\n')
    given = ["-f", str(path)] if verb == "embed" else [str(path)]
    assert "is what is read" in refusal(verb, "-m", "model", *given, "-o", str(path))
    assert '"more"' in path.read_text()
