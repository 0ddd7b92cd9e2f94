"""Rows of .jsonl and .parquet files -> their paragraphs; a row is a document.

What enters: a file and the name of the field or column. What leaves: row numbers with lists of paragraphs.
A row that is broken is named in the report and left out.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bertkit.errors import BertkitError
from bertkit.text.files import numbered_lines, open_bytes, open_seekable, unpacking_errors
from bertkit.text.reports import ReadReport

Row = tuple[int, list[str]]
MAX_ROW_BYTES = 64 * 2**20
BATCH_ROWS = 64  # few, because a row can be a whole book
READ_BUFFER = 2**20
SURROGATE = re.compile("[\ud800-\udfff]")


def jsonl_rows(path: Path, field: str, report: ReadReport) -> Iterator[Row]:
    """Every row's paragraphs; blank lines are no rows."""
    last_long = 0
    with open_bytes(path) as stream:
        try:
            for number, raw, whole in numbered_lines(stream, MAX_ROW_BYTES):
                if whole and raw.strip():
                    yield from _row(path, number, _json_value(raw, field, number), report)
                elif not whole and number != last_long:
                    last_long = number
                    report.add_problem(str(path), number, f"a row of more than {MAX_ROW_BYTES >> 20} MiB")
        except unpacking_errors(path) as error:
            report.add_problem(str(path), 0, f"cannot be read to its end ({error})")


def parquet_rows(path: Path, column: str, report: ReadReport) -> Iterator[Row]:
    """Every row's paragraphs, a few rows in memory at a time."""
    from pyarrow import ArrowException  # heavy, and only this kind of file needs it

    try:
        stream = open_seekable(path)
    except unpacking_errors(path) as error:
        report.add_problem(str(path), 0, f"cannot be read to its end ({error})")
        return
    with stream:
        try:
            for number, value in _parquet_values(stream, path, column, report):
                yield from _row(path, number, value, report)
        except (ArrowException, OSError) as error:
            report.add_problem(str(path), 0, f"not a parquet file ({_first_line(error)})")


class _BrokenRowError(Exception):
    """Why this row is left out."""


def _row(path: Path, number: int, value: Any, report: ReadReport) -> Iterator[Row]:
    """The row's paragraphs, or none when it is broken or empty, which the report then says."""
    try:
        paragraphs = paragraphs_of(value)
    except _BrokenRowError as broken:
        report.add_problem(str(path), number, str(broken))
        return
    if paragraphs:
        yield number, paragraphs
    else:
        report.num_empty += 1


def paragraphs_of(value: Any) -> list[str]:
    """The lines of a text that are not blank, or of each text of a list."""
    if isinstance(value, _BrokenRowError):
        raise value
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise _BrokenRowError("the field is not text")
    if any(not text.isascii() and SURROGATE.search(text) for text in texts):
        raise _BrokenRowError("half a surrogate pair, which is no valid Unicode")
    return [line for text in texts for line in text.split("\n") if line and not line.isspace()]


def _json_value(raw: bytes, field: str, number: int) -> Any:
    try:
        row = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError:
        return _BrokenRowError("not UTF-8")
    except (ValueError, RecursionError):
        return _BrokenRowError("not JSON")
    if not isinstance(row, dict) or field not in row:
        return _BrokenRowError(f'no JSON object with the field "{field}"')
    return row[field]


def _parquet_values(stream: IO[bytes], path: Path, column: str, report: ReadReport) -> Iterator[tuple[int, Any]]:
    """The column's values with their row numbers, row group by row group; a damaged group is named and passed over."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    # Buffered, so that a column of a large row group is read bit by bit and not as a whole.
    file = ParquetFile(stream, pre_buffer=False, buffer_size=READ_BUFFER)
    names = file.schema_arrow.names
    if column not in names:
        raise BertkitError(f"{path} has no column {column!r}, but {', '.join(names)}; name the one that holds the text")
    first = 1
    for group in range(file.num_row_groups):
        number = first
        try:
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=[column]):
                for value in _python_values(batch.column(0)):
                    yield number, value
                    number += 1
        except (ArrowException, OSError) as error:
            report.add_problem(str(path), number, f"row group {group} cannot be read from here ({_first_line(error)})")
        first += file.metadata.row_group(group).num_rows


def _python_values(column: Any) -> list[Any]:
    try:
        return [_decoded(value) for value in column.to_pylist()]
    except UnicodeDecodeError:
        return [_decoded(value) for value in map(_python_value, column)]


def _python_value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return _BrokenRowError("not UTF-8")


def _decoded(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return _BrokenRowError("not UTF-8")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
