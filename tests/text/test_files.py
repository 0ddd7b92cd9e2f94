"""Which files a path means, how they are opened, and lines that stay bounded."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.text import files
from bertkit.text.files import find_files, kind_of, numbered_lines, open_bytes, open_seekable
from tests.text.packing import PACKERS


def test_folders_are_searched_in_a_fixed_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a.jsonl.gz", "deep/c.PARQUET", "deep/d.md", ".hidden/e.txt", ".f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.warns(UserWarning, match=r"1 other file in .* is not read: 1 \.md"):
        found = [str(file.relative_to(tmp_path)) for file in find_files([tmp_path, tmp_path / "b.txt"])]
    (tmp_path / "deep" / "d.md").unlink()
    assert found == ["a.jsonl.gz", "b.txt", "deep/c.PARQUET"]
    assert find_files([tmp_path / "b.txt", tmp_path])[0] == tmp_path / "b.txt", "files come first where named first"


def test_what_bertkit_wrote_into_a_folder_of_text_is_no_text(tmp_path: Path) -> None:
    for name in ("a.txt", "vocab.txt", "report.txt"):
        (tmp_path / name).write_text("Text of mine.\n")
    mine = find_files([tmp_path])
    for folder, names in (
        ("v", ("vocab.txt", "tokenizer_config.json")),
        ("s", ("report.txt", "shard-00000.tokens.bin")),
    ):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text("")
    with pytest.warns(UserWarning, match=r"4 other files in .* are not read: 2 \.txt, "):
        assert find_files([tmp_path]) == mine
    assert find_files([tmp_path / "v" / "vocab.txt"]) == [tmp_path / "v" / "vocab.txt"], "as given"
    assert len(mine) == 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", "txt"),
        ("a.TXT.XZ", "txt"),
        ("a.b.ndjson.zst", "jsonl"),
        ("a.jsonl", "jsonl"),
        ("a.parquet", "parquet"),
    ],
)
def test_the_name_says_what_a_file_is(name: str, kind: str) -> None:
    assert kind_of(Path(name)) == kind


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"")
    with pytest.raises(BertkitError, match=r"a.pdf is no text by its ending; give a file that is \.txt"):
        find_files([tmp_path / "a.pdf"])
    with pytest.raises(BertkitError, match=r"holds no \.txt"):
        find_files([tmp_path])
    with pytest.raises(BertkitError, match="no file or folder"):
        find_files([tmp_path / "gone"])
    with pytest.raises(BertkitError, match="cannot be opened"):
        open_bytes(tmp_path / "gone.txt")


@pytest.mark.parametrize("ending", PACKERS)
def test_packed_files_are_unpacked(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(PACKERS[ending](b"one\n") + PACKERS[ending](b"two\n"))  # two frames, as parallel packers write
    with open_bytes(path) as stream:
        assert stream.readline() == b"one\n"
        assert stream.read() == b"two\n"
    with open_seekable(path) as stream:
        stream.seek(-4, io.SEEK_END)
        assert stream.read() == b"two\n"


def test_zst_files_need_no_library_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "zstd_library", lambda: None)
    path, text = tmp_path / "a.txt.zst", "".join(f"line {number}\n" for number in range(50_000)).encode()
    packed = PACKERS[".zst"](text)
    path.write_bytes(packed * 2)
    with open_bytes(path) as stream:
        assert stream.read() == text * 2, "all frames"
    path.write_bytes(packed[:-1])
    with open_bytes(path) as stream, pytest.raises(OSError, match="Truncated"):
        stream.read()


@given(st.lists(st.text("aé中 \U0001f600", max_size=40)), st.integers(16, 40), st.booleans())
def test_long_lines_come_in_parts_that_join(lines: list[str], limit: int, last_end: bool) -> None:
    content = "\n".join(lines).encode() + b"\n" * last_end
    joined: dict[int, bytes] = {}
    for number, part, whole in numbered_lines(io.BytesIO(content), limit):
        assert len(part) <= limit
        part.decode()  # never cut inside a character
        assert not whole or number not in joined
        joined[number] = joined.get(number, b"") + part
    expected = dict(enumerate(io.BytesIO(content).read().split(b"\n"), start=1))
    assert [joined.get(number, b"") for number in expected] == list(expected.values())
