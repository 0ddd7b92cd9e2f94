"""Files -> Documents: .txt with blank lines between documents (or one a file, or one a line), .jsonl and .parquet rows.

What enters: a file, and how it is laid out. What leaves: Documents one at a time, in the order of the file, the same
ones every time; memory stays bounded. What is broken is left out and named in the ReadReport.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from bertkit.errors import BertkitError
from bertkit.text.files import kind_of, numbered_lines, open_bytes, unpacking_errors
from bertkit.text.reports import ReadReport
from bertkit.text.rows import Row, jsonl_rows, parquet_rows

DocumentUnit = Literal["blank-line", "file", "line"]
LineUnit = Literal["paragraph", "sentence"]
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How the files are laid out."""

    documents: DocumentUnit = "blank-line"  # what ends a document of a .txt file
    lines: LineUnit = "paragraph"  # what a line is; a sentence is not split again
    field: str = "text"  # of a .jsonl row, or the column of a .parquet file
    max_characters: int = 16 * 2**20  # a longer document is given in parts

    def __post_init__(self) -> None:
        if self.documents not in get_args(DocumentUnit):
            raise BertkitError(f"documents={self.documents!r} is not known; choose {', '.join(get_args(DocumentUnit))}")
        if self.lines not in get_args(LineUnit):
            raise BertkitError(f"lines={self.lines!r} is not known; choose {' or '.join(get_args(LineUnit))}")
        if self.max_characters < 1024:
            raise BertkitError(f"max_characters={self.max_characters} is too small; give at least 1024")


@dataclass(frozen=True, slots=True)
class Document:
    """Paragraphs in their order, and where they came from: the file, and the first line or row there."""

    paragraphs: list[str]
    file: str
    line: int
    lines_are_sentences: bool = False


def read_documents(
    path: str | Path, options: ReadOptions | None = None, report: ReadReport | None = None
) -> Iterator[Document]:
    """The documents of one file; the report counts what was given and names what was left out."""
    options = ReadOptions() if options is None else options
    report = ReadReport() if report is None else report
    path = Path(path)
    match kind_of(path):
        case "txt":
            found = _txt_documents(path, options, report)
        case "jsonl":
            found = jsonl_rows(path, options.field, report)
        case "parquet":
            found = parquet_rows(path, options.field, report)
    if not path.is_file():
        raise BertkitError(f"no file {path}; name a .txt, .jsonl or .parquet file")
    return _count(found, path, options, report)


def _count(found: Iterator[Row], path: Path, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    for line, paragraphs in found:
        report.num_documents += 1
        report.num_paragraphs += len(paragraphs)
        report.num_characters += sum(map(len, paragraphs))
        yield Document(paragraphs, str(path), line, options.lines == "sentence")
    report.num_files += 1


def _txt_documents(path: Path, options: ReadOptions, report: ReadReport) -> Iterator[Row]:
    paragraphs: list[str] = []
    size, first = 0, 1
    for number, text in _txt_lines(path, options.max_characters, report):
        blank = not text or text.isspace()
        full = size + len(text) > options.max_characters
        if paragraphs and (full or (blank and options.documents == "blank-line")):
            report.num_parts += full and not blank
            yield first, paragraphs
            paragraphs, size = [], 0
        if blank:
            continue
        if options.documents == "line":
            yield number, [text]
            continue
        first = first if paragraphs else number
        paragraphs.append(text)
        size += len(text)
    if paragraphs:
        yield first, paragraphs


def _txt_lines(path: Path, limit: int, report: ReadReport) -> Iterator[tuple[int, str]]:
    """Every line that is UTF-8, with its number; what is not is named."""
    with open_bytes(path) as stream:
        try:
            for number, raw, whole in numbered_lines(stream, limit):
                if number == 1 and raw.startswith(UTF16_MARKS):
                    report.add_problem(str(path), 0, "UTF-16, not UTF-8; convert it first")
                    return
                report.num_parts += not whole
                try:
                    # utf-8-sig drops the byte order mark that some editors put before the first line
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError:
                    report.add_problem(str(path), number, "not UTF-8")
                    continue
                yield number, text
        except unpacking_errors(path) as error:
            report.add_problem(str(path), 0, f"cannot be read to its end ({error})")
