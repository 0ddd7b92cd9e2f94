"""Features to files, chunk by chunk: .parquet with texts, labels and how they were made, or .npy with vectors alone."""

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.features.make import FeatureChunk, FeatureOptions, label_text, make_recipe, stream_features
from bertkit.inference.vector_files import NpyWriter
from bertkit.tasks.features import METADATA, FeatureRecipe, recipe_json
from bertkit.tasks.reading.examples import TagExample, TextExample
from bertkit.text.files import written_aside


class FeatureWriter(Protocol):
    """Takes chunks, then is closed."""

    def write(self, chunk: FeatureChunk) -> None: ...

    def close(self) -> None: ...


def features_to_file(
    bert: Bert,
    examples: Iterable[TextExample | TagExample],
    output: Path,
    options: FeatureOptions | None = None,
    *,
    model: str = "",
    progress: Callable[[int], None] | None = None,
) -> tuple[int, FeatureRecipe]:
    """Write the features of all examples; returns how many rows, and how they were made."""
    options = options or FeatureOptions()
    check_ending(output)
    recipe = make_recipe(bert, options, model)
    count = 0
    with written_aside(output) as partial, closing(WRITERS[output.suffix](partial, recipe, options.dtype)) as writer:
        for chunk in stream_features(bert, examples, options, progress=progress):
            writer.write(chunk)
            count += len(chunk.vectors)
    return count, recipe


def check_ending(output: Path) -> None:
    """Refuse a name that does not say what to write."""
    if output.suffix not in WRITERS:
        raise BertkitError(f"cannot write features to {output.name!r}; end it in {', '.join(WRITERS)}")


class FeatureArray:
    """Vectors alone, as one array."""

    def __init__(self, path: Path, recipe: FeatureRecipe, dtype: str) -> None:
        self.array = NpyWriter(path, recipe.width, dtype)

    def write(self, chunk: FeatureChunk) -> None:
        """Append the vectors."""
        self.array.write(chunk.texts, chunk.vectors)

    def close(self) -> None:
        """Fill in the number of rows."""
        self.array.close()


class FeatureParquet:
    """`text`, `pair`, `label`, `vector`, or for words `text_id`, `word`, `label`, `vector`."""

    def __init__(self, path: Path, recipe: FeatureRecipe, dtype: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.pa, self.recipe = pa, recipe
        names = [("text_id", pa.int64()), ("word", pa.string())]
        if recipe.per == "text":
            names = [("text", pa.string()), ("pair", pa.string())]
        vector = pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), recipe.width)
        metadata = {METADATA: json.dumps(recipe_json(recipe))}
        self.schema = pa.schema([*names, ("label", pa.string()), ("vector", vector)], metadata=metadata)
        small = [name for name in self.schema.names if name != "vector"]
        # Vectors hardly repeat: a dictionary and compression would cost time and save nothing.
        packed = dict.fromkeys(small, "zstd") | {"vector.list.element": "none"}
        self.writer = pq.ParquetWriter(path, self.schema, use_dictionary=small, compression=packed)

    def write(self, chunk: FeatureChunk) -> None:
        """Append the rows as a row group."""
        flat = self.pa.array(np.ascontiguousarray(chunk.vectors).ravel(), self.schema.field("vector").type.value_type)
        vectors = self.pa.FixedSizeListArray.from_arrays(flat, self.recipe.width)
        labels = self.pa.array([label_text(label) for label in chunk.labels], self.pa.string())
        first: list[Any] = [self.pa.array(chunk.text_ids), self.pa.array(chunk.texts, self.pa.string())]
        if self.recipe.per == "text":
            first = [self.pa.array(column, self.pa.string()) for column in (chunk.texts, chunk.pairs)]
        self.writer.write_table(self.pa.table([*first, labels, vectors], schema=self.schema))

    def close(self) -> None:
        """Write the footer."""
        self.writer.close()


WRITERS: dict[str, Callable[[Path, FeatureRecipe, str], FeatureWriter]] = {
    ".parquet": FeatureParquet,
    ".npy": FeatureArray,
}
