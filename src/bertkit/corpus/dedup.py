"""Exact de-duplication of paragraphs over a whole corpus: 128-bit keys on disk, one partition in memory at a time.

What enters: one file of keys per shard, in the order of the paragraphs. What leaves: the numbers of the paragraphs
that were seen before (counted through all shards), sorted within each partition, and the most repeated ones.
Equal keys lie in one partition, and the first occurrence in input order stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.store_files import ArrayReader, ArrayWriter, map_array

KEY = np.dtype([("high", "<u8"), ("low", "<u8")])
RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("index", "<i8"), ("count", "<i8")])
INDEX = np.dtype("<i8")
KEYS_IN_MEMORY = 1 << 20  # in one partition: about 100 MiB while it is sorted
MOST_PARTITIONS = 1 << 9  # files open at once
TOP = 20


@dataclass(frozen=True)
class Repeated:
    """A paragraph that occurs more than once: its first occurrence's number, and how often it occurs."""

    index: int
    count: int


@dataclass(frozen=True)
class Duplicates:
    """What de-duplication found: partitions' files of paragraph numbers to leave out, and the most repeated."""

    num_removed: int
    files: tuple[str, ...]
    repeated: tuple[Repeated, ...]


def find_duplicates(
    key_files: Sequence[Path], folder: Path, *, keys_in_memory: int = KEYS_IN_MEMORY, top: int = TOP
) -> Duplicates:
    """Compare all keys; the lists of duplicates are written into `folder`, which must be there and empty."""
    total = sum(path.stat().st_size for path in key_files) // KEY.itemsize
    near = folder / "duplicates-near.bin"
    partitions = _partition(key_files, folder, near, _bits_for(total, keys_in_memory))
    lists = [near]
    repeated: list[Repeated] = []
    for number, path in enumerate(partitions):
        firsts, removed = _group(np.fromfile(path, RECORD))
        path.unlink()
        repeated = _most_repeated(repeated, firsts[firsts["count"] > 1], top)
        lists.append(folder / f"duplicates-{number:03d}.bin")
        with ArrayWriter(lists[-1], INDEX) as file:
            file.write(removed)
    num_removed = sum(path.stat().st_size for path in lists) // INDEX.itemsize
    return Duplicates(num_removed, tuple(path.name for path in lists), tuple(repeated))


class DuplicateLists:
    """The lists of a finished comparison, asked for one range of paragraphs after another."""

    def __init__(self, folder: Path, duplicates: Duplicates) -> None:
        self._paths = [folder / name for name in duplicates.files]
        self._lists: list[NDArray[np.int64]] = []
        self._num_asked = 0

    def keep(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which of the paragraphs start..stop stay."""
        if self._num_asked % 256 == 0:  # maps made anew let go of the pages that were read
            self._lists.clear()  # first: each holds a file open
            self._lists = [map_array(path, INDEX) for path in self._paths]
        self._num_asked += 1
        kept = np.ones(stop - start, bool)
        for indices in self._lists:
            first, end = np.searchsorted(indices, (start, stop))
            kept[indices[first:end] - start] = False
        return kept


def _bits_for(total: int, keys_in_memory: int) -> int:
    """The logarithm of the number of partitions, which depends on the number of keys alone."""
    partitions = min(MOST_PARTITIONS, -(-total // keys_in_memory))
    return max(0, partitions - 1).bit_length()


def _partition(key_files: Sequence[Path], folder: Path, near: Path, bits: int) -> list[Path]:
    """Append every key, with its number, to the partition that its highest bits name.

    Equal keys of one block are settled at once and listed in `near`, so that a paragraph that makes up half of the
    corpus does not make a partition too large for memory.
    """
    paths = [folder / f"partition-{number:03d}.bin" for number in range(1 << bits)]
    with ExitStack() as stack:
        removed_file = stack.enter_context(ArrayWriter(near, INDEX))
        files = [stack.enter_context(path.open("wb")) for path in paths]
        for records in _numbered(key_files):
            firsts, removed = _group(records)
            removed_file.write(removed)
            home = firsts["high"] >> np.uint64(64 - bits) if bits else np.zeros(len(firsts), np.uint64)
            bounds = np.searchsorted(home, np.arange(len(files) + 1))
            for number in np.flatnonzero(np.diff(bounds)):
                files[number].write(firsts[bounds[number] : bounds[number + 1]].tobytes())
    return paths


def _numbered(key_files: Sequence[Path], block: int = 1 << 18) -> Iterator[NDArray[Any]]:
    base = 0
    for path in key_files:
        with ArrayReader(path, KEY) as file:
            while len(keys := file.take(block)):
                records = np.empty(len(keys), RECORD)
                records["high"], records["low"], records["count"] = keys["high"], keys["low"], 1
                records["index"] = np.arange(base, base + len(keys))
                yield records
                base += len(keys)


def _group(records: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The first record of each key, in the order of keys, with the counts of all; and the numbers of the others."""
    if not len(records):
        return records, np.zeros(0, np.int64)
    # Stable, and of equal keys the earlier paragraph always comes first: blocks are in order, unique in themselves.
    records = records[np.lexsort((records["low"], records["high"]))]
    high, low = records["high"], records["low"]
    again = np.concatenate([[False], (high[1:] == high[:-1]) & (low[1:] == low[:-1])])
    firsts = records[~again]
    firsts["count"] = np.add.reduceat(records["count"], np.flatnonzero(~again))
    return firsts, np.sort(records["index"][again])


def _most_repeated(known: list[Repeated], found: NDArray[Any], top: int) -> list[Repeated]:
    best = found[np.lexsort((found["index"], -found["count"]))[:top]]
    groups = known + [
        Repeated(int(index), int(count)) for index, count in zip(best["index"], best["count"], strict=True)
    ]
    return sorted(groups, key=lambda group: (-group.count, group.index))[:top]
