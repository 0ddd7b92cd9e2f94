"""Rows of .parquet files, read and written with a few of them in memory at a time."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from bertkit.errors import BertkitError
from bertkit.tasks.reading.problems import BadRowError, whole_file
from bertkit.text.files import open_seekable

BATCH_ROWS = 512


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """pyarrow's ParquetFile; a file that is none is one clear line."""
    from pyarrow import ArrowException  # heavy, and only this kind of file needs it
    from pyarrow.parquet import ParquetFile

    with whole_file(path), open_seekable(path) as stream:
        try:
            yield ParquetFile(stream, pre_buffer=False, buffer_size=2**20)
        except ArrowException as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise BertkitError(f"{path}: not a parquet file ({reason}); is it complete?") from None


def parquet_schema(path: Path) -> Any:
    """The columns and their types."""
    with open_parquet(path) as file:
        return file.schema_arrow


def parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any] | BadRowError]]:
    """Every row with its number, counted from 1."""
    number = 0
    with open_parquet(path) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            for values in _values(batch):
                number += 1
                yield number, values


def _values(batch: Any) -> list[Any]:
    try:
        found: list[Any] = batch.to_pylist()
    except (UnicodeDecodeError, ValueError):
        found = [_single(batch.slice(row, 1)) for row in range(batch.num_rows)]
    return found


def _single(row: Any) -> Any:
    try:
        return row.to_pylist()[0]
    except UnicodeDecodeError:
        return BadRowError("not UTF-8; write the column anew from text")
    except ValueError as error:
        return BadRowError(f"a cell that Python cannot hold ({error}); drop that column")


@contextmanager
def parquet_writer(
    stream: IO[bytes], columns: Sequence[str], schema: Any
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that writes one row; types are the input's, and for new columns those of the first rows."""
    writer = _BatchWriter(stream, columns, schema)
    yield writer.add
    writer.close()


class _BatchWriter:
    """Collects rows and writes them some hundred at a time."""

    def __init__(self, stream: IO[bytes], columns: Sequence[str], schema: Any) -> None:
        self._stream, self._columns = stream, list(columns)
        self._types = {} if schema is None else {field.name: plain_type(field.type) for field in schema}
        self._rows: list[Mapping[str, Any]] = []
        self._writer: Any = None

    def add(self, values: Mapping[str, Any]) -> None:
        if extra := values.keys() - set(self._columns):
            raise BertkitError(f"a row has a field {min(extra)!r} that earlier rows do not have; write .jsonl")
        self._rows.append(values)
        if len(self._rows) == BATCH_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow
        import pyarrow.parquet

        cells = {name: [row.get(name) for row in self._rows] for name in self._columns}
        for name in self._columns:
            self._types.setdefault(name, guess_type(cells[name]))
        schema = pyarrow.schema([(name, self._types[name]) for name in self._columns])
        if self._writer is None:
            self._writer = pyarrow.parquet.ParquetWriter(self._stream, schema)
        arrays = [as_array(cells[name], self._types[name], name) for name in self._columns]
        self._writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
        self._rows = []


def plain_type(kind: Any) -> Any:
    """The type itself, or of the values behind a dictionary, which cannot be written from plain values."""
    import pyarrow

    return kind.value_type if pyarrow.types.is_dictionary(kind) else kind


def guess_type(values: Sequence[Any]) -> Any:
    """What pyarrow makes of these values; text where they differ or are all missing."""
    import pyarrow

    try:
        kind = pyarrow.array(values).type
    except (pyarrow.ArrowException, UnicodeEncodeError):
        return pyarrow.string()
    if pyarrow.types.is_list(kind) and pyarrow.types.is_null(kind.value_type):
        return pyarrow.list_(pyarrow.string())  # no class in any of these rows; others may have some
    return pyarrow.string() if pyarrow.types.is_null(kind) else kind


def as_array(values: Sequence[Any], kind: Any, name: str) -> Any:
    """The values as a column of this type; in a column of text, what is no text is written as JSON."""
    import pyarrow

    if pyarrow.types.is_string(kind):
        values = [
            value if value is None or isinstance(value, str) else json.dumps(value, default=str) for value in values
        ]
    try:
        return pyarrow.array(values, kind)
    except (pyarrow.ArrowException, TypeError) as error:
        reason = (str(error).splitlines() or ["?"])[0]
        raise BertkitError(f"column {name!r} changes its type ({reason}); write .jsonl") from None
