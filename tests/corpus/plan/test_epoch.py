"""Plans: every sentence is used, pairs are what they say, and every seed and epoch has its own."""

import hashlib
import itertools
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ks_2samp

from bertkit.corpus.pairs import MemoryShard, PairConfig
from bertkit.corpus.plan import layout as plan_layout
from bertkit.corpus.plan.epoch import Plan, plan_epoch
from bertkit.corpus.plan.layout import Layout, cut_evenly, read_layout
from bertkit.errors import BertkitError


def make_shard(num_documents: int, key: int, longest: int = 40, mean_length: float = 12.0) -> MemoryShard:
    """Token ids count up, so that a token is its own place in the shard."""
    random = np.random.default_rng(key)
    documents = random.integers(1, longest, num_documents)
    sentences = random.geometric(1 / mean_length, documents.sum())
    offsets = np.concatenate([[0], np.cumsum(sentences)])
    return MemoryShard(np.arange(offsets[-1]), offsets, np.concatenate([[0], np.cumsum(documents)]))


def document_of(shard: MemoryShard, tokens: np.ndarray) -> np.ndarray:
    bounds = shard.sentence_offsets[shard.document_offsets]
    return np.searchsorted(bounds, tokens, side="right") - 1


def spans(plan: Plan) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(plan.a_starts, plan.a_lengths.astype(int)), (plan.b_starts, plan.b_lengths.astype(int))]


def used(plan: Plan, size: int, only: np.ndarray | None = None) -> np.ndarray:
    """Which tokens are in any A, or in a B of the examples `only`."""
    marks = np.zeros(size + 1, dtype=int)
    for rows, (starts, lengths) in zip((slice(None), only), spans(plan), strict=True):
        if rows is not None:
            np.add.at(marks, starts[rows], 1)
            np.add.at(marks, (starts + lengths)[rows], -1)
    return np.cumsum(marks[:-1]) > 0


@given(st.integers(2, 30), st.integers(0, 10_000), st.integers(8, 80), st.booleans())
def test_every_sentence_and_every_piece_of_a_long_one_is_used(n: int, key: int, max_length: int, nsp: bool) -> None:
    shard, config = make_shard(n, key), PairConfig(max_length=max_length, nsp=nsp)
    layout = read_layout([shard], config)
    plan = plan_epoch(layout, config, seed=key, epoch=0)
    marks = used(plan, len(shard.tokens), plan.is_next)  # strangers do not count
    assert np.add.reduceat(marks, layout.unit_offsets[:-1]).all()
    assert np.diff(layout.unit_offsets).max() <= config.room
    assert (plan.a_lengths.astype(int) + plan.b_lengths <= config.room).all()
    assert (plan.a_lengths > 0).all()
    assert (plan.b_lengths > 0).all() if nsp else (plan.b_lengths == 0).all()


def test_pairs_are_what_they_say() -> None:
    shard, config = make_shard(300, 1), PairConfig(max_length=64)
    plan = plan_epoch(read_layout([shard], config), config, seed=1, epoch=0)
    (a, a_lengths), (b, b_lengths) = spans(plan)
    for starts, lengths in spans(plan):
        assert (document_of(shard, starts) == document_of(shard, starts + lengths - 1)).all()
    assert ((document_of(shard, a) == document_of(shard, b)) == plan.is_next).all()
    assert (b >= a + a_lengths)[plan.is_next].all()
    assert (b - (a + a_lengths) < 64)[plan.is_next].all()
    assert b_lengths.min() > 0


def test_half_are_next_and_a_tenth_is_short() -> None:
    shard, config = make_shard(2000, 2), PairConfig(max_length=64)
    plan = plan_epoch(read_layout([shard], config), config, seed=1, epoch=0)
    can_be_next = np.diff(shard.document_offsets)[document_of(shard, plan.a_starts)] > 1
    assert binomtest(int(plan.is_next.sum()), int(can_be_next.sum()), 0.5).pvalue > 0.001
    assert binomtest(int(plan.is_short.sum()), len(plan), 0.1).pvalue > 0.001


def test_lengths_do_not_give_the_answer_away() -> None:
    shard, config = make_shard(3000, 3, longest=60), PairConfig(max_length=64)
    plan = plan_epoch(read_layout([shard], config), config, seed=1, epoch=0)
    (_, a), (_, b) = spans(plan)
    for lengths in (a, b, a + b):
        assert ks_2samp(lengths[plan.is_next], lengths[~plan.is_next]).pvalue > 0.001


def same(one: Plan, other: Plan) -> bool:
    return all(np.array_equal(getattr(one, field.name), getattr(other, field.name)) for field in fields(Plan))


@pytest.mark.parametrize("nsp", [True, False])
def test_every_seed_and_every_epoch_has_a_plan_of_its_own(nsp: bool) -> None:
    config = PairConfig(max_length=48, nsp=nsp)
    layout = read_layout([make_shard(200, 4)], config)
    whole = plan_epoch(layout, config, seed=5, epoch=2)
    assert same(whole, plan_epoch(layout, config, seed=5, epoch=2))
    assert not same(whole, plan_epoch(layout, config, seed=5, epoch=3))
    assert not same(whole, plan_epoch(layout, config, seed=6, epoch=2))


@pytest.mark.parametrize(("nsp", "digest"), [(True, "99809a81ac17875d"), (False, "4c2aae51dbf78bf1")])
def test_a_plan_has_the_same_bytes_for_ever(nsp: bool, digest: str) -> None:
    config = PairConfig(max_length=64, nsp=nsp)
    layout = read_layout([make_shard(300, 1, longest=90), make_shard(40, 2)], config)
    plan = plan_epoch(layout, config, seed=5, epoch=3)
    columns = [np.ascontiguousarray(getattr(plan, field.name)).tobytes() for field in fields(plan)]
    assert hashlib.sha256(b"".join(columns)).hexdigest()[:16] == digest  # runs that were killed count on it


def test_shards_are_one_corpus() -> None:
    parts, config = [make_shard(30, 1), make_shard(1, 2), make_shard(40, 3)], PairConfig(max_length=48)
    empty = MemoryShard(*(np.zeros(size, dtype=np.int64) for size in (0, 1, 1)))
    joined = MemoryShard.of([[[0] * n for n in lengths] for part in parts for lengths in lengths_of(part)])
    apart = read_layout([parts[0], empty, *parts[1:]], config)
    assert same(
        plan_epoch(apart, config, seed=1, epoch=0), plan_epoch(read_layout([joined], config), config, seed=1, epoch=0)
    )


def lengths_of(shard: MemoryShard) -> list[list[int]]:
    lengths, bounds = np.diff(shard.sentence_offsets), shard.document_offsets
    return [lengths[low:high].tolist() for low, high in itertools.pairwise(bounds)]


def stranger_shares(layout: Layout, shard: MemoryShard, config: PairConfig) -> np.ndarray:
    plan = plan_epoch(layout, config, seed=1, epoch=0)
    strangers = document_of(shard, plan.b_starts[~plan.is_next])
    return np.bincount(strangers, minlength=layout.num_documents) / len(strangers)


def test_strangers_come_from_documents_by_their_size_up_to_a_cap() -> None:
    sizes = [4000, *[20] * 400, *[40] * 200]  # a book of a fifth of the corpus
    shard = MemoryShard.of([[[0] * 10] * size for size in sizes])
    config = PairConfig(max_length=64)
    shares = stranger_shares(read_layout([shard], config), shard, config)
    assert shares[0] < 2 * plan_layout.STRANGER_CAP
    assert abs(shares[401:].sum() / shares[1:401].sum() - 1.0) < 0.1  # 200 x 40 sentences against 400 x 20


def test_huge_documents_are_planned_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_layout, "LONGEST_STRETCH", 16)
    shard, config = make_shard(20, 5, longest=200), PairConfig(max_length=48)
    layout = read_layout([shard], config)
    assert len(layout.stretch_document) > layout.num_documents
    plan = plan_epoch(layout, config, seed=1, epoch=0)
    assert ((document_of(shard, plan.a_starts) == document_of(shard, plan.b_starts)) == plan.is_next).all()
    assert np.add.reduceat(used(plan, len(shard.tokens), plan.is_next), layout.unit_offsets[:-1]).all()


def test_without_nsp_examples_are_whole_sentences_one_after_another() -> None:
    shard, config = make_shard(50, 6), PairConfig(max_length=64, nsp=False, short_share=0.0)
    layout = read_layout([shard], config)
    plan = plan_epoch(layout, config, seed=1, epoch=0)
    assert plan.a_starts[0] == 0
    assert (plan.a_starts[1:] == plan.a_starts[:-1] + plan.a_lengths[:-1]).all()
    assert np.isin(plan.a_starts, layout.unit_offsets).all()


def test_spans_are_cut_evenly() -> None:
    offsets, owners = cut_evenly(np.array([0, 5, 5, 35, 40]), 12, 12)
    assert offsets.tolist() == [0, 5, 15, 25, 35, 40]
    assert owners.tolist() == [0, 2, 2, 2, 3]


def test_plans_are_compact() -> None:
    config = PairConfig()
    plan = plan_epoch(read_layout([make_shard(100, 7)], config), config, seed=1, epoch=0)
    assert plan.num_bytes <= 24 * len(plan)


def test_too_few_documents_are_refused() -> None:
    with pytest.raises(BertkitError, match="at least two"):
        read_layout([make_shard(1, 1)], PairConfig())
    read_layout([make_shard(1, 1)], PairConfig(nsp=False))
    with pytest.raises(BertkitError, match="no sentence"):
        read_layout([MemoryShard.of([[[]]])], PairConfig(nsp=False))


def test_swapped_pairs_are_neighbours_in_the_wrong_order() -> None:
    shard, config = make_shard(2000, 2, longest=8), PairConfig(max_length=64, negatives="swapped")
    plan = plan_epoch(read_layout([shard], config), config, seed=1, epoch=0)
    (a, a_lengths), (b, b_lengths) = spans(plan)
    is_pair = document_of(shard, a) == document_of(shard, b)
    assert (np.diff(shard.document_offsets)[document_of(shard, a)] == 1)[~is_pair].all()  # one sentence has a stranger
    assert not plan.is_next[~is_pair].any()
    assert ((b >= a + a_lengths) == plan.is_next)[is_pair].all()
    assert (a >= b + b_lengths)[is_pair & ~plan.is_next].all()
    assert binomtest(int(plan.is_next.sum()), int(is_pair.sum()), 0.5).pvalue > 0.001
    longer_first = (a_lengths > b_lengths)[is_pair]
    assert abs((longer_first == plan.is_next[is_pair]).mean() - 0.5) < 0.05  # lengths tell next to nothing


def test_negatives_that_nobody_knows_are_refused() -> None:
    with pytest.raises(BertkitError, match="strangers, swapped"):
        PairConfig(negatives="none")  # type: ignore[arg-type]
