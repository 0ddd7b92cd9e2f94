"""Vectors to files, chunk by chunk: .npy (vectors alone), .parquet and .jsonl (text and vector).

A file is written aside and renamed when complete, so that a stopped run leaves no half of one behind.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.embedding import EmbedOptions, Vectors
from bertkit.inference.layers import LayerChoice, check_layer
from bertkit.text.files import written_aside


class VectorWriter(Protocol):
    """Takes chunks of texts with their vectors, then is closed."""

    def write(self, texts: list[str], vectors: Vectors) -> None: ...

    def close(self) -> None: ...


def embed_to_file(
    bert: Bert,
    texts: Iterable[str],
    output: Path,
    *,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> tuple[int, int]:
    """Embed texts into a file by its ending; returns how many vectors of how many dimensions were written."""
    if output.suffix not in WRITERS:
        raise BertkitError(f"cannot write vectors to {output.name!r}; end it in {', '.join(WRITERS)}")
    chosen = check_options(bert, options)
    width = bert.embedding_size(chosen.layer)
    with written_aside(output) as partial, closing(WRITERS[output.suffix](partial, width, chosen.dtype)) as writer:
        count = write_vectors(bert, texts, writer, progress=progress, **options)
    return count, width


def write_vectors(
    bert: Bert,
    texts: Iterable[str],
    writer: VectorWriter,
    *,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> int:
    """Feed a writer chunk after chunk; returns the number of vectors."""
    check_options(bert, options)
    waiting: deque[str] = deque()  # read, with no vector yet: texts are tokenized ahead

    def keep(text: str) -> str:
        waiting.append(text)
        return text

    count = 0
    for vectors in bert.embed_stream(map(keep, texts), progress=progress, **options):
        writer.write([waiting.popleft() for _ in vectors], vectors)
        count += len(vectors)
    return count


def check_options(bert: Bert, options: dict[str, Any]) -> EmbedOptions:
    """Refuse bad options before any text is read."""
    chosen = bert.embed_options(**options)
    check_layer(chosen.layer, bert.config.num_layers)
    return chosen


def parse_layer(layer: str) -> LayerChoice:
    """A layer as typed on the command line."""
    try:
        return int(layer)
    except ValueError:
        return layer  # EmbedOptions checks the names


class NpyWriter:
    """One array; the number of rows is filled in at the end."""

    def __init__(self, path: Path, width: int, dtype: str) -> None:
        self.file, self.shape, self.dtype = path.open("wb"), [0, width], np.dtype(dtype)
        self._write_header()

    def _write_header(self) -> None:
        # numpy leaves room in the header for more digits in the number of rows, so it can be written again in place
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": tuple(self.shape)}
        np.lib.format.write_array_header_1_0(self.file, header)

    def write(self, texts: list[str], vectors: Vectors) -> None:
        self.shape[0] += len(vectors)
        self.file.write(np.ascontiguousarray(vectors).tobytes())

    def close(self) -> None:
        self.file.seek(0)
        self._write_header()
        self.file.close()


class ParquetWriter:
    """Columns `text` and `vector`."""

    def __init__(self, path: Path, width: int, dtype: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.pa, self.width = pa, width
        vector = pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), width)
        self.schema = pa.schema([("text", pa.string()), ("vector", vector)])
        self.writer = pq.ParquetWriter(path, self.schema)

    def write(self, texts: list[str], vectors: Vectors) -> None:
        flat = self.pa.array(vectors.ravel(), self.schema.field("vector").type.value_type)
        column = self.pa.FixedSizeListArray.from_arrays(flat, self.width)
        self.writer.write_table(self.pa.table([self.pa.array(texts), column], schema=self.schema))

    def close(self) -> None:
        self.writer.close()


class JsonlWriter:
    """A JSON object a line."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def write(self, texts: list[str], vectors: Vectors) -> None:
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            self.file.write(json.dumps({"text": text, "vector": vector}, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self.file.close()


WRITERS: dict[str, Callable[[Path, int, str], VectorWriter]] = {
    ".npy": NpyWriter,
    ".parquet": ParquetWriter,
    ".jsonl": lambda path, _width, _dtype: JsonlWriter(path.open("w", encoding="utf-8")),
}
