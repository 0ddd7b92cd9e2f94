"""Vectors in files: whole or not at all, in order over the borders of chunks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.inference import embedding, vector_files
from bertkit.inference.bert import Bert
from bertkit.inference.vector_files import NpyWriter, embed_to_file, parse_layer

TEXTS = ["the dog", "", "a cat in the garden", "milk", "he ran", "中文 😀", 'a "quoted" \u2028 text']
ENDINGS = (".npy", ".parquet", ".jsonl")


def read(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        assert table["text"].to_pylist() == TEXTS
        return np.stack(table["vector"].to_numpy())
    plain = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    assert [row["text"] for row in plain] == TEXTS
    return np.array([row["vector"] for row in plain])


@pytest.mark.parametrize("size", [1, 3, 7, 8])
@pytest.mark.parametrize("ending", ENDINGS)
def test_chunks_join_without_a_seam(
    ending: str, size: int, bert: Bert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "CHUNK_TEXTS", size)
    path, done = tmp_path / f"vectors{ending}", list[int]()
    assert embed_to_file(bert, iter(TEXTS), path, progress=done.append) == (len(TEXTS), 128)
    np.testing.assert_allclose(read(path), bert.embed(TEXTS), atol=1e-5)
    assert sum(done) == len(TEXTS)
    assert max(done) <= size


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_types_in_files(dtype: str, bert: Bert, tmp_path: Path) -> None:
    for ending in (".npy", ".parquet"):
        count, width = embed_to_file(bert, TEXTS, tmp_path / f"v{ending}", dtype=dtype, layer="concat-last-4")
        assert (count, width) == (len(TEXTS), 512)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert (mapped.dtype, mapped.shape) == (np.dtype(dtype), (len(TEXTS), 512))
    field = pq.read_schema(tmp_path / "v.parquet").field("vector")
    assert field.type == pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), 512)


def broken(error: BaseException) -> Iterator[str]:
    yield from TEXTS
    raise error


@pytest.mark.parametrize("error", [BertkitError("line 8"), ValueError("a bug"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_run_that_stops_leaves_what_was_there(
    ending: str, error: BaseException, bert: Bert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "CHUNK_TEXTS", 3)
    path = tmp_path / f"vectors{ending}"
    path.write_text("from an earlier run")
    with pytest.raises(type(error)):
        embed_to_file(bert, broken(error), path)
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [(path.name, "from an earlier run")]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_run_that_stops_closes_its_file(
    ending: str, bert: Bert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    make = vector_files.WRITERS[ending]
    monkeypatch.setitem(vector_files.WRITERS, ending, lambda *args: made.append(make(*args)) or made[-1])  # type: ignore[func-returns-value]
    with pytest.raises(BertkitError):
        embed_to_file(bert, broken(BertkitError("line 8")), tmp_path / f"vectors{ending}")
    (writer,) = made
    assert writer.writer.is_open is False if ending == ".parquet" else writer.file.closed


@pytest.mark.parametrize("ending", ENDINGS)
def test_options_are_checked_before_there_are_texts(ending: str, bert: Bert, tmp_path: Path) -> None:
    for options in ({"pooling": "median"}, {"layer": 9}, {"dtype": "float99"}, {"dtype": "int8"}, {"long": "cut"}):
        with pytest.raises(BertkitError):
            embed_to_file(bert, [], tmp_path / f"vectors{ending}", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_header_has_room_for_many_rows(tmp_path: Path) -> None:
    writer = NpyWriter(tmp_path / "v.npy", 1, "float16")
    start = writer.file.tell()
    writer.shape[0] = 10**15
    writer.close()
    assert (tmp_path / "v.npy").stat().st_size == start


@given(st.integers())
def test_layers_as_typed(number: int) -> None:
    assert parse_layer(str(number)) == number


@pytest.mark.parametrize("name", ["concat-last-4", "mean-last-4", "last", "", "1.5"])
def test_layers_by_name(name: str) -> None:
    assert parse_layer(name) == name
