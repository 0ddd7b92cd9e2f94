"""Rows with new columns -> .csv, .tsv, .jsonl or .parquet (packed too), a row at a time.

What enters: the Table that the rows were read from, and rows. What leaves: a file with every column of the input in its
place and the new ones after them. It is written aside and renamed at the end, so that no half file ever has the name.
"""

import gzip
import io
import json
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from bertkit.errors import BertkitError
from bertkit.tasks.reading.delimited import Dialect
from bertkit.tasks.reading.examples import Label
from bertkit.tasks.reading.labels import SEPARATOR
from bertkit.tasks.reading.lines import SURROGATE
from bertkit.tasks.reading.tables import TABLE_KINDS, Row, Table, TableKind
from bertkit.text.files import inner_suffix, written_aside, zstd_library

Write = Callable[[Mapping[str, Any]], None]


@contextmanager
def prediction_writer(path: str | Path, table: Table) -> Iterator[Callable[[Row, Label, float | None], None]]:
    """A function that writes a row with its label and confidence; their columns get other names where these are taken."""
    label_name, confidence_name = (free_name(name, table.columns) for name in ("label", "confidence"))
    with table_writer(path, table, [label_name, confidence_name]) as write:

        def write_prediction(row: Row, label: Label, confidence: float | None) -> None:
            if taken := [name for name in (label_name, confidence_name) if name in row.values]:
                raise BertkitError(f"line {row.line} has a field {taken[0]!r} that earlier rows do not have; rename it")
            rounded = None if confidence is None else round(confidence, 6)
            write({**row.values, label_name: label, confidence_name: rounded})

        yield write_prediction


def free_name(name: str, columns: Sequence[str]) -> str:
    """This name, or predicted_ before it, or a number after that."""
    candidates = [name, f"predicted_{name}", *(f"predicted_{name}_{number}" for number in range(2, len(columns) + 3))]
    return next(candidate for candidate in candidates if candidate not in columns)


@contextmanager
def table_writer(path: str | Path, table: Table, added: Sequence[str] = ()) -> Iterator[Write]:
    """A function that writes the values of one row; the file appears when all went well."""
    path = Path(path)
    kind = TABLE_KINDS.get(inner_suffix(path))
    if kind is None:
        raise BertkitError(f"{path} has no ending that says what to write; name it {', '.join(TABLE_KINDS)}")
    with open_aside(path) as stream, _writer(kind, stream, table, added) as write:
        yield write


@contextmanager
def open_aside(path: Path) -> Iterator[IO[bytes]]:
    """A file to be written, packed as its name says, that appears when all went well."""
    try:
        with written_aside(path) as aside, _open_packed(aside, path.suffix.lower()) as stream:
            yield stream
    except UnicodeEncodeError:
        raise BertkitError(f"cannot write {path}: a cell is no valid Unicode; write .jsonl") from None


def _open_packed(path: Path, suffix: str) -> IO[bytes]:
    match suffix:
        case ".gz":
            return cast(IO[bytes], gzip.open(path, "wb"))
        case ".xz":
            return lzma.open(path, "wb")
        case ".zst":
            library = zstd_library()
            if library is None:
                from pyarrow import output_stream  # heavy; reading does the same

                return io.BufferedWriter(output_stream(path, compression="zstd"))
            return cast(IO[bytes], library.open(path, "wb"))
    return path.open("wb")


@contextmanager
def _writer(kind: TableKind, stream: IO[bytes], table: Table, added: Sequence[str]) -> Iterator[Write]:
    columns = [*table.columns, *added]
    if kind == "parquet":
        from bertkit.tasks.reading.parquet import parquet_writer  # pyarrow is heavy

        with parquet_writer(stream, columns, table.schema) as write:
            yield write
        return
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    yield _jsonl(text) if kind == "jsonl" else _delimited(text, kind, table, columns)
    text.detach()


def _jsonl(text: IO[str]) -> Write:
    def write(values: Mapping[str, Any]) -> None:
        line = json.dumps(values, ensure_ascii=False, default=str)
        text.write((json.dumps(values, default=str) if SURROGATE.search(line) else line) + "\n")

    return write


def _delimited(text: IO[str], kind: TableKind, table: Table, columns: Sequence[str]) -> Write:
    """The input's own layout if it has this kind, else the usual one."""
    own = table.dialect if table.kind == kind else None
    dialect = own or Dialect("\t" if kind == "tsv" else ",")
    if header := _header(table, columns):
        # In a .tsv file only a header in quotes tells readers that quotes wrap cells.
        text.write(_line(header, dialect, wrap_all=kind == "tsv" and dialect.quoted))
    known = set(columns)

    def write(values: Mapping[str, Any]) -> None:
        if extra := values.keys() - known:
            raise BertkitError(f"a row has a field {min(extra)!r} that earlier rows do not have; write .jsonl")
        text.write(_line([_cell(values.get(name)) for name in columns], dialect))

    return write


def _header(table: Table, columns: Sequence[str]) -> list[str]:
    """As the input has it, with the new names; none if it has none."""
    if table.dialect is not None and table.header is None:
        return []
    return [*(table.header or table.columns), *columns[len(table.columns) :]]


def _line(cells: Sequence[str], dialect: Dialect, *, wrap_all: bool = False) -> str:
    if dialect.quoted:
        special = (dialect.delimiter, '"', "\n", "\r", "\ufeff")
        wrapped = [_wrap(cell) if wrap_all or any(c in cell for c in special) else cell for cell in cells]
        return (dialect.delimiter.join(wrapped) or '""') + "\n"
    bad = [cell for cell in cells if dialect.delimiter in cell or "\n" in cell or cell.endswith("\r")]
    if bad or cells == [""]:
        raise BertkitError(
            f"{''.join(bad)[:40]!r} cannot stand in a file whose quotes are literal; write .csv or .jsonl"
        )
    return dialect.delimiter.join(cells) + "\n"


def _wrap(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def _cell(value: Any) -> str:
    """A value as a cell: several classes with ; between them, or as JSON when that would be ambiguous."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        plain = all(isinstance(name, str) and name.strip() == name != "" and SEPARATOR not in name for name in value)
        if plain and not (value and value[0].startswith("[")):
            return SEPARATOR.join(value)
    if isinstance(value, bool | dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
