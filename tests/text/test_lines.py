"""Texts from files: a line is a text, whatever is in it, and what is broken stops with its number."""

import gzip
import io
import json
import lzma
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.text.lines import read_texts

# Any line that people can write: no line end, no half of a surrogate pair, no byte order mark.
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff"), max_size=20)
ODD = ["", " ", "tab\t", "\x0b\x0c\x1c\x1d\x1e", "\x85\u2028\u2029", "\x00", "😀 中文", "[MASK]", '{"text": "a"}']
PACKERS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


def texts_of(path: Path, content: bytes, field: str = "text") -> list[str]:
    path.write_bytes(content)
    return list(read_texts(str(path), field))


def refusal(path: Path, content: bytes) -> str:
    with pytest.raises(BertkitError) as caught:
        texts_of(path, content)
    (line,) = str(caught.value).splitlines()
    return line


@in_one_folder
@example(ODD, "\n", True)
@example(ODD, "\r\n", False)
@given(st.lists(LINE), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_round_trip(tmp_path: Path, texts: list[str], end: str, last_end: bool) -> None:
    content = end.join(texts) + (end if last_end and texts else "")
    # Without an end, a last line that is empty is no line.
    expected = texts if last_end or not texts or texts[-1] else texts[:-1]
    for ending, pack in PACKERS.items():
        assert texts_of(tmp_path / f"texts.txt{ending}", pack(content.encode())) == expected


@in_one_folder
@example([*ODD, "two\nlines", "\r", "\ufeff"], True)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20)), st.booleans())
def test_json_lines_round_trip(tmp_path: Path, texts: list[str], ascii_only: bool) -> None:
    content = "".join(json.dumps({"n": 1, "body": text}, ensure_ascii=ascii_only) + "\n" for text in texts)
    for name in ("texts.jsonl", "texts.ndjson", "a.b.jsonl.gz", "texts.jsonl.xz"):
        pack = PACKERS.get(Path(name).suffix, bytes)
        assert texts_of(tmp_path / name, pack(content.encode()), "body") == texts


def test_only_the_name_decides_what_is_json(tmp_path: Path) -> None:
    line = '{"text": "a"}'
    for name in ("texts.txt", "texts", "jsonl", "texts.jsonl.txt"):
        assert texts_of(tmp_path / name, line.encode()) == [line]
    (tmp_path / "folder.jsonl").mkdir()
    assert texts_of(tmp_path / "folder.jsonl" / "texts.txt", line.encode()) == [line]


@pytest.mark.parametrize("name", ["TEXTS.JSONL", "texts.Jsonl", "TEXTS.JSONL.GZ", "TEXTS.TXT.XZ"])
def test_endings_in_capitals(name: str, tmp_path: Path) -> None:
    content = b'{"text": "a"}\n' if "json" in name.lower() else b"a\n"
    pack = PACKERS.get(Path(name).suffix.lower(), bytes)
    assert texts_of(tmp_path / name, pack(content)) == ["a"]


@pytest.mark.parametrize(("name", "content"), [("a.txt", b"a\nb\n"), ("a.jsonl", b'{"text": "a"}\n{"text": "b"}\n')])
def test_a_byte_order_mark_is_no_text(name: str, content: bytes, tmp_path: Path) -> None:
    assert texts_of(tmp_path / name, b"\xef\xbb\xbf" + content) == ["a", "b"]


@pytest.mark.parametrize(
    "broken", [b"\xff", b"caf\xe9", b"\xed\xa0\x80", b"\xc0\x80", "cut short 中".encode()[:-1]], ids=ascii
)
def test_what_is_not_utf8_has_a_line_number(broken: bytes, tmp_path: Path) -> None:
    for ending, pack in PACKERS.items():
        path = tmp_path / f"texts.txt{ending}"
        said = refusal(path, pack(b"one\n\nthree\n" + broken + b"\nfive\n"))
        assert said.startswith(f"{path}, line 4: not UTF-8")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", 'not a JSON object with the field "text"'),
        ("{", 'not a JSON object with the field "text"'),
        ('{"text": "a"} {"text": "b"}', 'not a JSON object with the field "text"'),
        ('"text"', 'not a JSON object with the field "text"'),
        ('[{"text": "a"}]', 'not a JSON object with the field "text"'),
        ("null", 'not a JSON object with the field "text"'),
        ('{"Text": "a"}', 'not a JSON object with the field "text"'),
        ("[" * 100_000, 'not a JSON object with the field "text"'),
        ('{"text": null}', 'the field "text" is not text'),
        ('{"text": ["a"]}', 'the field "text" is not text'),
        ('{"text": 1}', 'the field "text" is not text'),
    ],
    ids=lambda value: value[:20],
)
def test_a_broken_json_line_has_a_number(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    assert refusal(path, f'{{"text": "a"}}\n{line}\n{{"text": "c"}}\n'.encode()) == f"{path}, line 2: {said}"


def test_lines_before_the_broken_one_are_given(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes(b"one\ntwo\n\xff\n")
    texts = read_texts(str(tmp_path / "texts.txt"))
    assert [next(texts), next(texts)] == ["one", "two"]
    with pytest.raises(BertkitError, match="line 3"):
        next(texts)


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_packed_files_that_are_damaged(ending: str, tmp_path: Path) -> None:
    path, plain = tmp_path / f"texts.txt{ending}", "".join(f"{n * n} texts\n" for n in range(3000)).encode()
    whole = PACKERS[ending](plain)
    for size in (1, 5, 20, len(whole) // 2, len(whole) - 1):
        assert f"{path}: cannot be read to its end" in refusal(path, whole[:size])
    assert f"{path}: cannot be read to its end" in refusal(path, plain)
    for place in range(12, len(whole) - 8, 97):
        damaged = bytearray(whole)
        damaged[place : place + 8] = bytes(byte ^ 0xA5 for byte in damaged[place : place + 8])
        assert str(path) in refusal(path, bytes(damaged))


def test_nothing_in_it(tmp_path: Path) -> None:
    for ending, pack in PACKERS.items():
        assert texts_of(tmp_path / f"a.txt{ending}", pack(b"")) == []
        assert texts_of(tmp_path / f"a.jsonl{ending}", pack(b"")) == []
        assert texts_of(tmp_path / f"b.txt{ending}", pack(b"\n\n")) == ["", ""]


def test_no_such_file(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.txt", tmp_path):
        with pytest.raises(BertkitError, match=f"no file {path}"):
            list(read_texts(str(path)))


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)  # root, who runs many a CI, may read everything
    (tmp_path / "texts.txt").touch()
    with pytest.raises(BertkitError, match=r"texts\.txt.*Permission denied"):
        list(read_texts(str(tmp_path / "texts.txt")))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_as_the_shell_makes_it(tmp_path: Path) -> None:
    """What `--file <(command)` is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        with suppress(BrokenPipeError):
            pipe.write_text("one\ntwo\n")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        assert list(read_texts(str(pipe))) == ["one", "two"]
    finally:
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))  # lets the writer go if nobody read
        writer.join()


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("ä\n\nc".encode()), encoding="ascii"))
    assert list(read_texts("-")) == ["ä", "", "c"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff\n")))
    with pytest.raises(BertkitError, match=r"line 2: not UTF-8"):
        list(read_texts("-"))
