"""Files of rows (.csv, .tsv, .jsonl, .parquet; plain, gz, xz, zst) -> their columns, and their rows one at a time.

What enters: a path. What leaves: a Table that can be read again and again, and that knows how it was laid out, so that
the same can be written. A row that is broken goes to the Problems.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from bertkit.errors import BertkitError
from bertkit.tasks.reading.delimited import NEVER_CLOSED, Dialect, Quotes, guess_dialect, records
from bertkit.tasks.reading.headers import is_header
from bertkit.tasks.reading.lines import check_unicode, raw_lines, sample_lines
from bertkit.tasks.reading.parquet import parquet_rows, parquet_schema
from bertkit.tasks.reading.problems import BadRowError, Problems
from bertkit.text.files import inner_suffix

TableKind = Literal["csv", "tsv", "jsonl", "parquet"]
TABLE_KINDS: dict[str, TableKind] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
SAMPLE_ROWS = 2000
ENOUGH_RECORDS = 20  # to know a layout by
Values = Mapping[str, Any] | BadRowError


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row by the names of their columns, and the line where it begins (its number in a parquet file)."""

    line: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A file of rows: what its columns are called, and how it is laid out."""

    path: Path
    kind: TableKind
    columns: tuple[str, ...]  # of a file without a header: "1", "2", ...
    header: tuple[str, ...] | None = None  # as it is written in a csv or tsv file
    dialect: Dialect | None = None
    fewest_cells: int = 0  # rows of a file without a header need not be equally long
    schema: Any = field(default=None, compare=False)  # pyarrow's, of a parquet file

    def rows(self, problems: Problems) -> Iterator[Row]:
        """Every row, in the file's order; the bad ones go to the problems."""
        match self.kind:
            case "jsonl":
                found = _jsonl_rows(self.path)
            case "parquet":
                found = parquet_rows(self.path)
            case _:
                found = self._delimited_rows()
        for line, values in found:
            if isinstance(values, BadRowError):
                problems.add(line, str(values))
            else:
                yield Row(line, values)

    def sample(self) -> list[Row]:
        """The first good rows."""
        return list(islice(self.rows(Problems(str(self.path), skip_bad=True)), SAMPLE_ROWS))

    def _delimited_rows(self) -> Iterator[tuple[int, Values]]:
        assert self.dialect is not None
        found = records(raw_lines(self.path), self.dialect)
        is_passed = self.header is None
        for line, cells in found:
            if is_passed or isinstance(cells, BadRowError):
                yield line, _checked(self._values, cells)
            else:
                is_passed = True  # the first record that can be read is the header

    def _values(self, cells: list[str] | BadRowError) -> dict[str, str]:
        if isinstance(cells, BadRowError):
            raise cells
        if not self.fewest_cells <= len(cells) <= len(self.columns):
            raise BadRowError(self._miscounted(len(cells)))
        for cell in cells:
            check_unicode(cell)
        return dict(zip(self.columns, cells + [""] * (len(self.columns) - len(cells)), strict=True))

    def _miscounted(self, num_cells: int) -> str:
        assert self.dialect is not None
        name = {"\t": "tabs", ",": "commas"}.get(self.dialect.delimiter, repr(self.dialect.delimiter))
        remedy = (
            "quote cells that hold one" if self.dialect.quoted else "quotes are literal here: quotes='wrap' changes it"
        )
        expected = f"the header names {len(self.columns)}" if self.header else f"others have {len(self.columns)}"
        return f"{num_cells} cells between {name} where {expected}; {remedy}"


def open_table(path: str | Path, *, header: bool | None = None, quotes: Quotes = "auto") -> Table:
    """Look at a file's first rows: its kind, its columns, its layout (a header and quotes are guessed unless said)."""
    path = Path(path)
    if not path.is_file():
        raise BertkitError(f"no file {path}; name a .csv, .tsv, .jsonl or .parquet file (also .gz, .xz, .zst)")
    kind = TABLE_KINDS.get(inner_suffix(path))
    match kind:
        case None:
            raise BertkitError(f"{path} is no table by its ending; give one that is {', '.join(TABLE_KINDS)}")
        case "jsonl":
            return Table(path, kind, _jsonl_columns(path))
        case "parquet":
            schema = parquet_schema(path)
            return Table(path, kind, tuple(schema.names), schema=schema)
    return _open_delimited(path, kind, header, quotes)


def _open_delimited(path: Path, kind: TableKind, header: bool | None, quotes: Quotes) -> Table:
    sample = sample_lines(path)
    dialect = guess_dialect(kind, sample, quotes)
    good = _good_records(sample, dialect)
    if not good:
        raise BertkitError(f"{path} has no rows; give it a header and one example a line")
    first, others = good[0], good[1:]
    if is_header(first, others[:SAMPLE_ROWS]) if header is None else header:
        return Table(path, kind, unique_names(first), tuple(first), dialect, len(first))
    widths = [len(cells) for cells in good]
    columns = tuple(str(number + 1) for number in range(max(widths)))
    return Table(path, kind, columns, None, dialect, min(widths))


def _good_records(sample: Sequence[str], dialect: Dialect) -> list[list[str]]:
    """Records of the first lines; those lines may end inside a quoted cell, whose own lines are no records."""
    good: list[list[str]] = []
    for _, cells in records(sample, dialect):
        if isinstance(cells, list):
            good.append(cells)
        elif str(cells) == NEVER_CLOSED and len(good) >= ENOUGH_RECORDS:
            break
    return good


def unique_names(header: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, each once; a column without one is called by its number."""
    names: dict[str, None] = {}
    for number, cell in enumerate(header, start=1):
        name = cell.strip() or str(number)
        while name in names:
            name = f"{name} ({number})"
        names[name] = None
    return tuple(names)


def _checked(make: Callable[[Any], Mapping[str, Any]], given: Any) -> Values:
    try:
        return make(given)
    except BadRowError as error:
        return error


def _jsonl_rows(path: Path) -> Iterator[tuple[int, Values]]:
    for number, line in enumerate(raw_lines(path), start=1):
        if not line.isspace():
            yield number, _checked(_json_object, line)


def _json_object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(check_unicode(line))
    except (ValueError, RecursionError):
        raise BadRowError("not JSON; write one JSON object a line") from None
    if not isinstance(row, dict):
        raise BadRowError("not a JSON object; write one a line, {...}")
    return row


def _jsonl_columns(path: Path) -> tuple[str, ...]:
    rows = (values for _, values in _jsonl_rows(path) if not isinstance(values, BadRowError))
    columns = {name: None for values in islice(rows, SAMPLE_ROWS) for name in values}
    if not columns:
        raise BertkitError(f"{path} has no JSON objects; write one a line, with a field for the text")
    return tuple(columns)
