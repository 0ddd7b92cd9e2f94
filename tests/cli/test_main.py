"""The program itself: its verbs, its exit codes, and what it says where."""

import errno
import io
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest
from huggingface_hub import constants

import bertkit
from bertkit.cli.main import app, main
from tests.cli.running import command, environment, refusal, refused, run, spawn

VERBS = [str(command.name) for command in app.registered_commands]


def test_help_names_every_verb_and_every_verb_has_an_example() -> None:
    shown, _ = run("--help")
    assert len(VERBS) > 20
    for verb in VERBS:
        assert verb in shown
    for verb in (*VERBS, "vocab train", "vocab extend"):
        assert f"Example: bertkit {verb}" in " ".join(run(*verb.split(), "--help")[0].split())


def test_the_version_is_told() -> None:
    assert run("--version")[0] == f"bertkit {bertkit.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said", "command"),
    [
        (("fill-musk", "x"), "'fill-musk'", "bertkit"),
        (("info", "--jsn"), "--jsn", "bertkit info"),
        (("fill-mask",), "Missing argument 'texts'", "bertkit fill-mask"),
        (("convert", "only-one"), "Missing argument 'target'", "bertkit convert"),
        (("fill-mask", "x", "-k", "0"), "--top-k", "bertkit fill-mask"),
        (("vocab", "train", "x"), "--output", "bertkit vocab train"),
    ],
)
def test_what_cannot_be_parsed_is_one_line_that_names_the_help(
    arguments: tuple[str, ...], said: str, command: str
) -> None:
    line = refusal(*arguments)
    assert said in line
    assert line.endswith(f"(see `{command} --help`)")


def test_the_same_as_a_program_of_its_own() -> None:
    result = spawn("info", "--jsn")
    assert result.stdout == b""
    assert refused(result.returncode, result.stderr.decode()).endswith("(see `bertkit info --help`)")


@pytest.mark.parametrize("arguments", [(), ("vocab",)])
def test_nothing_asked_shows_the_help_once(arguments: tuple[str, ...]) -> None:
    result = spawn(*arguments)
    assert result.returncode == 2
    assert result.stdout.count(b"Usage: bertkit") == 1
    assert result.stderr == b""


def test_a_name_of_several_lines_is_told_in_one(tmp_path: Path) -> None:
    absent = str(tmp_path / "two\nlines.txt")
    assert "two lines.txt" in refusal("vocab", "train", absent, "-o", str(tmp_path / "out"))


def test_a_refusal_of_a_huge_text_stays_a_line_that_can_be_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("the dog is here " * 20_000)
    line = refusal("vocab", "extend", str(folder), str(tmp_path / "words.txt"), "-o", str(tmp_path / "out"))
    assert line.startswith("bertkit: there is no word to add")
    assert len(line) < 3000


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 5 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 5 GiB"),
    ],
)
def test_no_memory_is_one_line_too(error: Exception, folder: Path) -> None:
    with patch("bertkit.inference.describe.describe", side_effect=error):
        assert "not enough memory" in refusal("info", "-m", str(folder))


def test_a_bug_still_shows_where_it_is(folder: Path) -> None:
    with (
        patch("bertkit.inference.describe.describe", side_effect=RuntimeError("a bug")),
        pytest.raises(RuntimeError, match="a bug"),
    ):
        refusal("info", "-m", str(folder))


def test_a_file_that_the_system_refuses_is_named(folder: Path) -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "some.file")
    with patch("bertkit.inference.describe.describe", side_effect=error):
        assert "some.file: Permission denied" in refusal("info", "-m", str(folder))


def test_standard_output_that_is_closed(folder: Path) -> None:
    words = shlex.join(command("info", "-m", str(folder)))
    result = subprocess.run(["sh", "-c", f"{words} >&-"], env=environment(), capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.parametrize(
    "arguments", [("fill-mask", "[MASK]"), ("next-sentence", "a", "b"), ("embed", "a"), ("inspect", "a")]
)
def test_no_model_named(arguments: tuple[str, ...]) -> None:
    assert "--model" in refusal(*arguments)


@pytest.mark.parametrize("arguments", [("fill-mask", "[MASK]"), ("next-sentence", "a", "b"), ("embed", "a"), ("info",)])
def test_a_folder_that_does_not_exist(arguments: tuple[str, ...], tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    assert absent in refusal(*arguments, "-m", absent)
    assert absent in refusal("convert", absent, str(tmp_path / "target"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    assert f"{tmp_path} holds no weights" in refusal("info", "-m", str(tmp_path))


def test_a_hub_name_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    said = refusal("info", "-m", "google-bert/bert-base-uncased")
    assert "no folder google-bert/bert-base-uncased here, and the hub could not be reached" in said


def test_the_model_may_come_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTKIT_MODEL", str(folder))
    assert "4 layers" in run("info")[0]


def test_refused_as_a_program_of_its_own(tmp_path: Path) -> None:
    result = spawn("info", "-m", str(tmp_path / "absent"))
    assert result.stdout == b""
    assert "absent" in refused(result.returncode, result.stderr.decode())


class FullDisk(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("arguments", [("info", "--json"), ("embed", "a"), ("fill-mask", "[MASK]")])
def test_no_room_for_the_output(arguments: tuple[str, ...], folder: Path) -> None:
    said = io.StringIO()
    with (
        patch.object(sys, "argv", ["bertkit", *arguments, "-m", str(folder)]),
        redirect_stdout(FullDisk()),
        redirect_stderr(said),
        pytest.raises(SystemExit) as stopped,
    ):
        main()
    assert "No space left on device" in refused(stopped.value.code, said.getvalue())


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_system_that_knows_only_ascii(more: tuple[str, ...], folder: Path) -> None:
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    with (
        patch.object(sys, "argv", ["bertkit", "next-sentence", "-m", str(folder), "é", "中文", *more]),
        redirect_stdout(written),
        pytest.raises(SystemExit) as stopped,
    ):
        main()
    assert not stopped.value.code
    written.seek(0)
    assert "中文".encode() in written.buffer.read()


def test_a_reader_that_has_seen_enough(folder: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.txt"
    many.write_text("the dog\n" * 5000)
    arguments = command("embed", "-m", str(folder), "-f", str(many))
    with subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline().startswith(b'{"text": "the dog"')
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait() == 1
