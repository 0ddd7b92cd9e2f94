"""Packing: every example once, never over the budget, hardly anything left empty, and overflows found early."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.corpus.masking import MaskingConfig
from bertkit.corpus.packing import (
    Capacities,
    Packing,
    check_capacities,
    choose_capacities,
    epoch_size,
    fit_packing,
    pack_epoch,
    stretch_packing,
)
from bertkit.corpus.random import permute
from bertkit.errors import BertkitError


def draw_lengths(count: int, longest: int, key: int) -> np.ndarray:
    """Like those of pairs: seven in ten full, the others of any length."""
    random = np.random.default_rng(key)
    lengths = np.where(random.random(count) < 0.7, longest, random.integers(6, longest + 1, count))
    return lengths.astype(np.uint16)


@given(st.integers(1, 400), st.integers(0, 1000), st.sampled_from([32, 128, 512]), st.integers(0, 3))
def test_every_example_once_and_none_over_the_budget(count: int, key: int, longest: int, extra: int) -> None:
    packing = pack_epoch(draw_lengths(count, longest, key), permute(count, key), 1024)
    assert sorted(packing.order.tolist()) == list(range(count))
    assert packing.num_tokens.max() <= 1024
    assert packing.num_sequences.min() > 0
    size = min(len(packing) + extra, count)
    stretched = stretch_packing(packing, size)
    assert (stretched.order == packing.order).all()
    assert stretched.num_sequences.min() > 0
    assert len(stretched) <= len(packing) + extra


@pytest.mark.parametrize("longest", [128, 512])
def test_the_budget_is_filled(longest: int) -> None:
    packing = pack_epoch(draw_lengths(20_000, longest, 1), permute(20_000, 1), 8192)
    assert packing.fill(8192) > 0.995
    size = epoch_size(packing)
    stretched = stretch_packing(packing, size)
    assert len(stretched) == size
    assert stretched.fill(8192) > 0.985


def test_an_epoch_with_too_many_examples_leaves_its_last_ones_out() -> None:
    packing = pack_epoch(draw_lengths(1000, 128, 1), permute(1000, 1), 1024)
    assert len(stretch_packing(packing, len(packing) - 2)) == len(packing) - 2


def test_chosen_capacities_hold_every_epoch() -> None:
    masking = MaskingConfig()
    first = pack_epoch(draw_lengths(5000, 128, 1), permute(5000, 1), 4096)
    capacities = choose_capacities(first, masking, num_tokens=4096, max_seqlen=128, num_special=3)
    assert capacities.num_masked < 0.17 * 4096
    for key in range(2, 6):
        packing = pack_epoch(draw_lengths(5000, 128, key), permute(5000, key), 4096)
        check_capacities(stretch_packing(packing, epoch_size(first)), masking, capacities, 3)


@given(st.integers(1, 300), st.integers(0, 1000), st.sampled_from([32, 128]), st.integers(0, 12), st.integers(0, 40))
def test_what_has_no_slot_is_left_out(count: int, key: int, longest: int, spare: int, masks: int) -> None:
    """Of each micro-batch the longest beginning that fits stays, and one that fits stays whole."""
    masking = MaskingConfig()
    packing = pack_epoch(draw_lengths(count, longest, key), permute(count, key), 512)
    capacities = Capacities(512, 512 // longest + 1 + spare, 20 + masks, longest)
    fitted = fit_packing(packing, masking, capacities, 3)
    check_capacities(fitted, masking, capacities, 3)
    assert len(fitted) == len(packing)
    for index in range(len(packing)):
        kept, rows = fitted[index].tolist(), packing[index].tolist()
        assert kept == rows[: len(kept)]
        if len(kept) < len(rows):
            one_more = Packing(np.array(rows[: len(kept) + 1]), np.array([0, len(kept) + 1]), packing.lengths)
            with pytest.raises(BertkitError, match="the capacity is"):
                check_capacities(one_more, masking, capacities, 3)


def test_an_overflow_fails_when_it_is_planned() -> None:
    packing = pack_epoch(draw_lengths(1000, 128, 1), permute(1000, 1), 4096)
    with pytest.raises(BertkitError, match="num_sequences"):
        check_capacities(packing, MaskingConfig(), Capacities(4096, 30, 4096, 128), 3)
    with pytest.raises(BertkitError, match="num_masked"):
        check_capacities(packing, MaskingConfig(), Capacities(4096, 500, 600, 128), 3)
    with pytest.raises(BertkitError, match="fewer than one sequence"):
        Capacities(64, 10, 10, 128)
