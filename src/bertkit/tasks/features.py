"""Features of a frozen encoder as a table: one vector a text or a word, with labels, and what they were made with.

Written by the encoder's side, read by the heads that are trained on them, from memory or from a parquet file, so
that the encoder runs once however many heads are tried (section 5.3 of the paper). No torch here.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import BertkitError

Per = Literal["text", "word"]
METADATA = b"bertkit.features"
IN_MEMORY_BYTES = 2 * 2**30  # larger tables are read into a temporary file and mapped


@dataclass(frozen=True)
class FeatureRecipe:
    """How features were made: whoever makes them the same way gets the same."""

    model: str  # where the checkpoint was
    encoder: str  # fingerprint of its weights
    layer: str
    per: Per
    width: int  # of a whole vector
    num_stacked: int = 1  # layers that lie side by side in it
    weighted: bool = False  # whether the head learns how to weigh these layers
    pooling: str = "mean"  # of texts; a word's vector is that of its first piece

    @property
    def hidden_size(self) -> int:
        """The width of one layer's vector."""
        return self.width // self.num_stacked

    def check_same(self, other: "FeatureRecipe", name: str) -> None:
        """Refuse features that were made in another way."""
        for part in ("encoder", "layer", "per", "pooling", "width"):
            ours, theirs = getattr(self, part), getattr(other, part)
            if ours != theirs:
                raise BertkitError(f"{name} was made with {part} {theirs}, not {ours}; make it like the other features")


@dataclass(frozen=True)
class FeatureTable:
    """Vectors [R, W] with a label each, in the order of the texts; rows of one text stand together."""

    recipe: FeatureRecipe
    vectors: NDArray[Any]
    labels: Sequence[str | None]
    texts: Sequence[str]  # the text, or the word
    text_ids: NDArray[np.int64]  # which text each row belongs to
    _file: Any = field(default=None, repr=False, compare=False)  # keeps a temporary file alive

    def __len__(self) -> int:
        return len(self.vectors)

    def groups(self) -> list[tuple[int, int]]:
        """First row and end of every text."""
        starts = np.flatnonzero(np.diff(self.text_ids, prepend=-1)).tolist()
        return list(zip(starts, [*starts[1:], len(self)], strict=True))

    def known_labels(self, name: str = "the features") -> list[str]:
        """The labels, all of them known."""
        missing = next((row for row, label in enumerate(self.labels) if label is None), None)
        if missing is not None:
            raise BertkitError(f"{name}: row {missing + 1} ({self.texts[missing]!r:.60}) has no label")
        return [label for label in self.labels if label is not None]


def recipe_json(recipe: FeatureRecipe) -> dict[str, Any]:
    """For a file's metadata or a head's folder."""
    return asdict(recipe)


def read_recipe(plain: Mapping[str, Any], name: str) -> FeatureRecipe:
    """The reverse."""
    try:
        return FeatureRecipe(**plain)
    except TypeError:
        raise BertkitError(
            f"{name}: its features were described by another version of bertkit; make them anew"
        ) from None


def read_features(path: str | Path) -> FeatureTable:
    """A parquet file of `bertkit features`, in memory or, where it is large, mapped from a temporary file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if Path(path).suffix == ".npy":
        raise BertkitError(f"{path} has vectors without labels; write them with `bertkit features ... -o NAME.parquet`")
    if not Path(path).is_file():
        raise BertkitError(f"no file {path}; `bertkit features ... -o {path}` writes it")
    try:
        file = pq.ParquetFile(path, memory_map=True)
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise BertkitError(f"{path} cannot be read as parquet ({reason[:120]}); `bertkit features` writes it") from None
    described = (file.schema_arrow.metadata or {}).get(METADATA)
    if described is None:
        raise BertkitError(f"{path} holds no features; make them with `bertkit features ... -o NAME.parquet`")
    recipe = read_recipe(json.loads(described), str(path))
    kind = file.schema_arrow.field("vector").type.value_type.to_pandas_dtype()
    vectors, kept = make_room(file.metadata.num_rows, recipe.width, np.dtype(kind))
    names = "word" if recipe.per == "word" else "text"
    columns = _fill(file, vectors, names)
    ids = columns.get("text_id") or range(len(vectors))
    return FeatureTable(recipe, vectors, columns["label"], columns[names], np.asarray(ids, dtype=np.int64), kept)


def make_room(rows: int, width: int, dtype: np.dtype[Any]) -> tuple[NDArray[Any], Any]:
    """An array to be filled, and the temporary file that it is mapped from where it is large."""
    if rows * width * dtype.itemsize <= IN_MEMORY_BYTES:
        return np.empty((rows, width), dtype), None
    kept = tempfile.NamedTemporaryFile(prefix="bertkit-features-")  # noqa: SIM115  (the table keeps it)
    return np.memmap(kept.name, dtype, "w+", shape=(rows, width)), kept


def _fill(file: Any, vectors: NDArray[Any], names: str) -> dict[str, list[Any]]:
    """Copy the vectors batch by batch; the small columns come back."""
    wanted = [name for name in (names, "label", "text_id") if name in file.schema_arrow.names]
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    start = 0
    for batch in _batches(file, [*wanted, "vector"]):
        flat = batch.column("vector").flatten().to_numpy(zero_copy_only=False)
        vectors[start : start + batch.num_rows] = flat.reshape(batch.num_rows, -1)
        start += batch.num_rows
        for name in wanted:
            columns[name] += batch.column(name).to_pylist()
    return columns


def _batches(file: Any, columns: list[str]) -> Iterator[Any]:
    yield from file.iter_batches(batch_size=1024, columns=columns)
