"""Files of a store that an epoch reads more or less often than once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.corpus.pairs import PairConfig
from bertkit.corpus.plan import layout as plan_layout
from bertkit.corpus.plan.epoch import plan_epoch
from bertkit.corpus.plan.layout import read_layout
from bertkit.corpus.plan.passes import chosen_stretches, passes_by_file
from bertkit.errors import BertkitError
from tests.corpus.plan.test_epoch import make_shard, same

CONFIG = PairConfig(max_length=48)
SHARDS = [make_shard(60, 1), make_shard(80, 2), make_shard(40, 3)]
BOUNDS = np.cumsum([0, *(len(shard.tokens) for shard in SHARDS)])


@given(st.tuples(*[st.floats(0.0, 3.0)] * 3).filter(any), st.integers(0, 1000))
def test_a_file_is_read_as_often_as_asked(passes: tuple[float, ...], seed: int) -> None:
    layout = read_layout(SHARDS, CONFIG, passes)
    stretches, numbers = chosen_stretches(layout, seed=seed, epoch=0)
    sizes = np.diff(layout.unit_offsets[layout.stretch_offsets])
    read = np.bincount(layout.stretch_shard[stretches], weights=sizes[stretches], minlength=3)
    assert (np.abs(read - np.array(passes) * np.diff(BOUNDS)) <= sizes.max()).all()
    assert len(set(zip(stretches.tolist(), numbers.tolist(), strict=True))) == len(stretches)
    counts = np.bincount(stretches, minlength=len(sizes))
    for shard, often in enumerate(passes):
        assert set(counts[layout.stretch_shard == shard]) <= {int(often), int(often) + 1}


def test_another_share_is_read_each_epoch_and_all_in_the_long_run() -> None:
    layout = read_layout(SHARDS, CONFIG, (0.25, 1.0, 1.0))
    epochs = [set(chosen_stretches(layout, seed=1, epoch=epoch)[0].tolist()) for epoch in range(60)]
    assert epochs[0] != epochs[1]
    assert epochs[0] == set(chosen_stretches(layout, seed=1, epoch=0)[0].tolist())
    assert set.union(*epochs) == set(range(len(layout.stretch_shard)))


def test_a_lone_stretch_has_its_turns() -> None:
    layout = read_layout([make_shard(1, 1), make_shard(30, 2)], CONFIG, (0.3, 1.0))
    turns = sum(0 in chosen_stretches(layout, seed=1, epoch=epoch)[0] for epoch in range(1000))
    assert 240 < turns < 360


def test_each_pass_draws_other_pairs_and_strangers_come_as_often_as_text() -> None:
    shards = [make_shard(600, 1), make_shard(800, 2), make_shard(400, 3)]
    bounds = np.cumsum([0, *(len(shard.tokens) for shard in shards)])
    plan = plan_epoch(read_layout(shards, CONFIG, (3.0, 1.0, 0.0)), CONFIG, seed=1, epoch=0)
    shard_of_b = np.searchsorted(bounds, plan.b_starts, side="right") - 1
    tokens = {
        is_next: np.bincount(shard_of_b[rows], weights=plan.b_lengths[rows].astype(float), minlength=3)
        for is_next, rows in ((True, plan.is_next), (False, ~plan.is_next))
    }
    for read in tokens.values():
        assert read[2] == 0
        assert read[0] / read[1] == pytest.approx(3 * bounds[1] / (bounds[2] - bounds[1]), rel=0.05)
    columns = plan.a_starts, plan.a_lengths, plan.b_starts, plan.b_lengths
    pairs = np.stack(columns, axis=1)[plan.a_starts < bounds[1]]
    assert len(np.unique(pairs, axis=0)) > 0.9 * len(pairs)


def test_once_each_is_the_plan_without_passes() -> None:
    plain, once = (plan_epoch(read_layout(SHARDS, CONFIG, one), CONFIG, seed=3, epoch=1) for one in (None, (1, 1, 1)))
    assert same(plain, once)


def test_parts_of_huge_documents_are_drawn_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_layout, "LONGEST_STRETCH", 16)
    shards = [make_shard(1, 5, longest=2000), make_shard(20, 6)]
    layout = read_layout(shards, CONFIG, (0.5, 1.0))
    of_first = layout.stretch_shard == 0
    chosen = chosen_stretches(layout, seed=1, epoch=0)[0]
    assert abs((layout.stretch_shard[chosen] == 0).sum() - of_first.sum() / 2) < 0.1 * of_first.sum()


def test_what_cannot_be_is_refused() -> None:
    for passes in ((-1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (float("nan"), 1.0, 1.0)):
        with pytest.raises(BertkitError, match=r"numbers in data\.passes must be 0 or more, and not 0 for all text"):
            read_layout(SHARDS, CONFIG, passes)
    with pytest.raises(BertkitError, match="at least two"):
        read_layout([make_shard(1, 1), make_shard(9, 2)], CONFIG, (1.0, 0.0))


def test_files_are_named_by_patterns() -> None:
    names = ["books.txt.xz", "wiki-0.txt.xz", "wiki-1.txt.xz"]
    assert passes_by_file(names, {}) is None
    assert passes_by_file(names, {"wiki-*": 2, "books.txt.xz": 0.5}) == (0.5, 2.0, 2.0)
    with pytest.raises(
        BertkitError, match=r"names 'boks\*', and the store was made of no such file; it has books.txt.xz, "
    ):
        passes_by_file(names, {"boks*": 1.0})
    with pytest.raises(BertkitError, match=r"'wiki-\*' and '\*-0\*', which both mean wiki-0.txt.xz; keep one"):
        passes_by_file(names, {"wiki-*": 1.0, "*-0*": 2.0})
