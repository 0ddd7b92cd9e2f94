"""Duplicates over shards, partition by partition, against a set in memory."""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.corpus.dedup import KEY, DuplicateLists, Duplicates, Repeated, find_duplicates

# Few values, so that many keys are equal in one half, in both, or in none; high bits choose the partition.
HALF = st.sampled_from([0, 1, 2**63, 2**64 - 1, 2**62 + 5, 3 * 2**61])
SHARDS = st.lists(st.lists(st.tuples(HALF, HALF), max_size=30), max_size=4)

Keys = list[list[tuple[int, int]]]


def compare(shards: Keys, folder: Path, keys_in_memory: int, top: int = 20) -> tuple[Duplicates, list[bool]]:
    """What is found, and for every paragraph whether it stays, asked for in small ranges."""
    files = []
    for number, keys in enumerate(shards):
        files.append(folder / f"keys-{number}")
        np.array(keys, KEY).tofile(files[-1])
    (folder / "found").mkdir()
    found = find_duplicates(files, folder / "found", keys_in_memory=keys_in_memory, top=top)
    lists = DuplicateLists(folder / "found", found)
    total = sum(map(len, shards))
    return found, [kept for start in range(0, total, 7) for kept in lists.keep(start, min(total, start + 7)).tolist()]


@settings(max_examples=60, deadline=None)
@given(shards=SHARDS, keys_in_memory=st.sampled_from([1, 3, 1000]))
def test_the_first_occurrence_stays_whatever_the_partitions(shards: Keys, keys_in_memory: int) -> None:
    seen: set[tuple[int, int]] = set()
    expected = []
    for key in itertools.chain(*shards):
        expected.append(key not in seen)
        seen.add(key)
    with tempfile.TemporaryDirectory() as folder:
        found, kept = compare(shards, Path(folder), keys_in_memory)
    assert kept == expected
    assert found.num_removed == expected.count(False)


def test_the_most_repeated_are_named_by_their_first_occurrence(tmp_path: Path) -> None:
    shards = [[(1, 1), (2, 2), (2**63, 0), (2, 2)], [(2, 2), (1, 1), (2**63, 0), (2**63, 1)]]
    found, _ = compare(shards, tmp_path, keys_in_memory=2)
    assert found.repeated == (Repeated(1, 3), Repeated(0, 2), Repeated(2, 2))


def test_only_so_many_are_named(tmp_path: Path) -> None:
    found, _ = compare([[(key, 0) for key in range(50)] * 2], tmp_path, keys_in_memory=5, top=3)
    assert found.repeated == (Repeated(0, 2), Repeated(1, 2), Repeated(2, 2))
    assert found.num_removed == 50


def test_partitions_are_gone_afterwards(tmp_path: Path) -> None:
    found, _ = compare([[(key << 56, 0) for key in range(200)]], tmp_path, keys_in_memory=20)
    assert len(found.files) > 4
    assert sorted(path.name for path in (tmp_path / "found").iterdir()) == sorted(found.files)


@pytest.mark.parametrize("shards", [[], [[]], [[], [(1, 2)], []]])
def test_nothing_to_compare(shards: Keys, tmp_path: Path) -> None:
    found, kept = compare(shards, tmp_path, keys_in_memory=10)
    assert found.num_removed == 0
    assert all(kept)
