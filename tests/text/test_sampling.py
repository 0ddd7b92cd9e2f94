"""Sampling to a budget: the same texts and seed give the same sample, whatever their order."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.text.sampling import TextSample, sample_texts

TEXTS = [f"text number {n} " + "x" * (n % 50) for n in range(4000)]


@given(st.lists(st.text(max_size=10)), st.integers(1, 60), st.integers(0, 3), st.randoms())
def test_order_plays_no_part(texts: list[str], budget: int, seed: int, rng: random.Random) -> None:
    here = sample_texts(texts, budget, seed)
    rng.shuffle(texts)
    there = sample_texts(texts, budget, seed)
    assert list(here.texts()) == list(there.texts())
    assert here.num_bytes == sum(len(text.encode()) for text in here.texts()) <= budget


def test_the_budget_is_used_and_the_seed_matters() -> None:
    drawn = [set(sample_texts(TEXTS, 20_000, seed).texts()) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sample_texts(TEXTS, 20_000).num_bytes > 19_900
    assert len(sample_texts(TEXTS, 10**9)) == len(TEXTS)


def test_the_sample_is_fair() -> None:
    halves = [
        sum(text in drawn for text in TEXTS[:2000]) / len(drawn) for drawn in [set(sample_texts(TEXTS, 60_000).texts())]
    ]
    assert halves[0] == pytest.approx(0.5, abs=0.06)


def test_held_out_texts_are_never_in_the_sample() -> None:
    sample = TextSample(10**9, max_held_out_bytes=10**6)
    for text in TEXTS * 2:
        sample.add(text)
    assert 5 <= len(set(sample.held_out)) <= 50
    assert not set(sample.held_out) & set(sample.texts())
    assert set(sample.held_out) | set(sample.texts()) == set(TEXTS)


def test_an_empty_budget_is_refused() -> None:
    with pytest.raises(BertkitError, match="larger"):
        TextSample(0)


def test_a_text_larger_than_the_budget_does_not_drive_out_the_others() -> None:
    huge = ["x" * 30_000 + str(n) for n in range(200)]  # some of them have lower hashes than all others
    assert list(sample_texts(TEXTS + huge, 20_000).texts()) == list(sample_texts(TEXTS, 20_000).texts())
