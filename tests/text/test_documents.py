"""Documents from files: what ends them, where they come from, and what is broken named and passed over."""

import json
import lzma
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit.errors import BertkitError
from bertkit.text.documents import Document, ReadOptions, read_documents
from bertkit.text.reports import MAX_NAMED, ReadReport
from bertkit.text.sentences import document_sentences
from tests.text.packing import PACKERS

TEXT = "\ufeffOne. Two.\nThree.\r\n\n \t\nFour.\n\u00a0\n\nFive.\nSix."
WANTED = [(1, ["One. Two.", "Three."]), (5, ["Four."]), (8, ["Five.", "Six."])]


def read(path: Path, **options: Any) -> tuple[list[tuple[int, list[str]]], ReadReport]:
    report = ReadReport()
    found = list(read_documents(path, ReadOptions(**options), report))
    assert {document.file for document in found} <= {str(path)}
    return [(document.line, document.paragraphs) for document in found], report


def named(report: ReadReport) -> list[tuple[int, str]]:
    return [(problem.line, problem.reason) for problem in report.named]


def write_parquet(path: Path, column: Iterable[Any], **options: Any) -> Path:
    pq.write_table(pa.table({"id": list(range(len(list(column)))), "text": column}), path, **options)
    return path


@pytest.mark.parametrize("ending", PACKERS)
def test_blank_lines_end_documents(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(PACKERS[ending](TEXT.encode()))
    found, report = read(path)
    assert found == [(1, WANTED[0][1]), (5, ["Four."]), (8, ["Five.", "Six."])]
    assert (report.num_files, report.num_documents, report.num_paragraphs) == (1, 3, 5)
    assert report.num_characters == sum(len(text) for _, texts in WANTED for text in texts)
    assert report.num_problems == 0
    assert read(path)[0] == found, "the same every time"


def test_a_file_or_a_line_can_be_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    assert read(path, documents="file")[0] == [(1, ["One. Two.", "Three.", "Four.", "Five.", "Six."])]
    assert [line for line, _ in read(path, documents="line")[0]] == [1, 2, 5, 8, 9]


def test_lines_can_be_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("One. Two.\nThree. Four.\n")
    (split,) = read_documents(path)
    (kept,) = read_documents(path, ReadOptions(lines="sentence"))
    assert document_sentences(split) == [["One.", "Two."], ["Three.", "Four."]]
    assert document_sentences(kept) == [["One. Two."], ["Three. Four."]]


def test_broken_utf8_is_named_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ncaf\xe9\ntwo\n\n\xff\n\nthree\n")
    found, report = read(path)
    assert found == [(1, ["one", "two"]), (7, ["three"])]
    assert named(report) == [(2, "not UTF-8"), (5, "not UTF-8")]
    assert "left out 2: not UTF-8" in report.lines()


def test_utf16_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n", encoding="utf-16")
    found, report = read(tmp_path / "a.txt")
    assert (found, len(report.named)) == ([], 1)
    assert "UTF-16" in report.named[0].reason


@pytest.mark.parametrize("name", ["a.txt.xz", "a.jsonl.xz"])
def test_a_file_cut_short_gives_what_it_has(name: str, tmp_path: Path) -> None:
    row = '{"text": "%s"}\n' if "json" in name else "%s\n\n"
    content = lzma.compress("".join(row % hash((n, "text")) for n in range(20_000)).encode())
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    found, report = read(tmp_path / name)
    assert 100 < len(found) < 20_000
    ((line, reason),) = named(report)
    assert line == 0
    assert reason.startswith("cannot be read to its end")


def test_long_documents_and_lines_come_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(["word " * 100] * 10) + "\n\n" + "long " * 1000)
    found, report = read(path, max_characters=1024)
    assert max(sum(map(len, paragraphs)) for _, paragraphs in found) <= 1024
    assert report.num_parts > 0
    assert report.lines()[1].endswith("was given in parts, each a document")
    assert " ".join(text for _, texts in found for text in texts).split() == ["word"] * 1000 + ["long"] * 1000


@pytest.mark.parametrize("ending", PACKERS)
def test_json_rows_are_documents(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl{ending}"
    rows = [{"body": "One.\n\nTwo."}, {"body": ["Three.", "Four.\nFive."]}, {"body": " \n"}, {"body": "Six."}]
    path.write_bytes(PACKERS[ending](b"\xef\xbb\xbf" + "\n".join(map(json.dumps, rows)).encode() + b"\n\n"))
    found, report = read(path, field="body")
    assert found == [(1, ["One.", "Two."]), (2, ["Three.", "Four.", "Five."]), (4, ["Six."])]
    assert (report.num_empty, report.num_problems) == (1, 0)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"text": "caf\xe9"}', "not UTF-8"),
        (b'"text"', 'no JSON object with the field "text"'),
        (b'{"body": "a"}', 'no JSON object with the field "text"'),
        (b'{"text": null}', "the field is not text"),
        (b'{"text": ["a", 1]}', "the field is not text"),
        (b'{"text": "\\ud800"}', "half a surrogate pair, which is no valid Unicode"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_broken_json_rows_are_named(row: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n' + row + b'\n{"text": "c"}\n')
    found, report = read(tmp_path / "a.jsonl")
    assert (found, named(report)) == ([(1, ["a"]), (3, ["c"])], [(2, reason)])


def test_a_row_that_fills_the_memory_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.text.rows.MAX_ROW_BYTES", 2**20)
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "' + "b " * 2**21 + '"}\n{"text": "c"}\n')
    found, report = read(tmp_path / "a.jsonl")
    assert (found, named(report)) == ([(1, ["a"]), (3, ["c"])], [(2, "a row of more than 1 MiB")])


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("make", [pa.array, lambda texts: pa.array(texts, pa.large_string())])
def test_parquet_rows_are_documents(ending: str, make: Callable[[list[str]], pa.Array], tmp_path: Path) -> None:
    column = make([f"row {n}\nmore" for n in range(150)])
    plain = write_parquet(tmp_path / "a.parquet", column, row_group_size=70)
    path = tmp_path / f"b.parquet{ending}"
    path.write_bytes(PACKERS[ending](plain.read_bytes()))
    assert read(path)[0] == [(n + 1, [f"row {n}", "more"]) for n in range(150)]


def test_broken_parquet_rows_are_named(tmp_path: Path) -> None:
    broken = pa.array([b"a", b"caf\xe9", b"c"]).cast(pa.binary()).view(pa.string())
    found, report = read(write_parquet(tmp_path / "a.parquet", broken))
    assert (found, named(report)) == ([(1, ["a"]), (3, ["c"])], [(2, "not UTF-8")])
    found, report = read(write_parquet(tmp_path / "b.parquet", pa.array([b"a", b"\xff"], pa.binary())))
    assert (found, named(report)) == ([(1, ["a"])], [(2, "not UTF-8")])
    found, report = read(write_parquet(tmp_path / "c.parquet", pa.array(["a", None, ""])))
    assert (found, named(report), report.num_empty) == ([(1, ["a"])], [(2, "the field is not text")], 1)


def test_a_damaged_row_group_is_passed_over(tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path / "a.parquet", [f"text {n}" for n in range(30)], row_group_size=10, compression="gzip"
    )
    start = pq.ParquetFile(path).metadata.row_group(1).column(1).data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 60] = b"\xff" * 60
    path.write_bytes(content)
    found, report = read(path)
    assert [line for line, _ in found] == [*range(1, 11), *range(21, 31)]
    ((line, reason),) = named(report)
    assert line == 11
    assert reason.startswith("row group 1 cannot be read")


def test_what_is_no_parquet_file(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"nothing of the kind")
    found, report = read(tmp_path / "a.parquet")
    assert (found, report.named[0].line) == ([], 0)
    assert report.named[0].reason.startswith("not a parquet file")
    with pytest.raises(BertkitError, match="no column 'body', but id, text"):
        read(write_parquet(tmp_path / "b.parquet", ["a"]), field="body")


def test_what_was_asked_for_is_checked(tmp_path: Path) -> None:
    for options in ({"documents": "page"}, {"lines": "word"}, {"max_characters": 10}):
        with pytest.raises(BertkitError):
            ReadOptions(**options)
    with pytest.raises(BertkitError, match="no file"):
        read_documents(tmp_path / "gone.txt")


def test_reports_add_up_and_come_back() -> None:
    seen: list[str] = []
    first, second = ReadReport(num_files=1, num_documents=2), ReadReport(num_empty=3)
    first.on_problem = lambda problem: seen.append(str(problem))
    for line in range(MAX_NAMED + 5):
        first.add_problem("a.txt", line, "not UTF-8")
    second.add_problem("b.txt", 7, "not JSON")
    assert seen[:2] == ["a.txt: not UTF-8", "a.txt, line 1: not UTF-8"]
    assert (len(seen), len(first.named), first.num_problems) == (MAX_NAMED + 5, MAX_NAMED, MAX_NAMED + 5)
    second.merge(first)
    assert (second.num_files, second.num_documents, second.num_empty) == (1, 2, 3)
    assert second.num_problems == MAX_NAMED + 6
    assert ReadReport.from_json(json.loads(json.dumps(second.to_json()))) == second
    assert second.lines()[-1] == f"  and {MAX_NAMED + 6 - 10:,} more"


def test_a_document_knows_its_origin(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\none\n")
    assert list(read_documents(tmp_path / "a.txt")) == [Document(["one"], str(tmp_path / "a.txt"), 3)]
