"""The texts that a command means: its arguments, the lines of a file, or a column of a table.

Nothing is skipped: an empty cell is an empty text and a broken row stops, so that rows and results match.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from bertkit.errors import BertkitError
from bertkit.tasks.reading.problems import Problems
from bertkit.tasks.reading.tables import Table, open_table
from bertkit.text.files import inner_suffix
from bertkit.text.lines import read_texts

TABLES = (".csv", ".tsv", ".tab", ".parquet", ".pq")


def chosen_texts(arguments: list[str] | None, file: str | None, field: str = "text") -> Iterator[str]:
    """The texts of a command: its arguments or its file, not both and not neither."""
    if bool(arguments) == bool(file):
        raise BertkitError("give texts as arguments or a file with --file (- for standard input), one of the two")
    if arguments:
        return iter(arguments)
    path = file or "-"
    return column_texts(path, field) if inner_suffix(Path(path)) in TABLES else read_texts(path, field)


def column_texts(path: str, column: str) -> Iterator[str]:
    """One column of a table, cell by cell."""
    table = open_table(path)
    if column not in table.columns:
        names = ", ".join(repr(name) for name in table.columns)
        raise BertkitError(f"{path} has no column {column!r}, but {names}; name the one that holds the text (--field)")
    return _cells(table, column)


def _cells(table: Table, column: str) -> Iterator[str]:
    problems = Problems(str(table.path), skip_bad=True)
    for row in chain(table.rows(problems), (None,)):
        if problems.named:
            raise BertkitError(str(problems.named[0]))
        if row is None:
            return
        if not isinstance(text := row.values[column], str):
            raise BertkitError(f"{table.path}, line {row.line}: the column {column!r} is not text")
        yield text
