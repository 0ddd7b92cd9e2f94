"""Masking: 15 % of a sequence, 80/10/10, special tokens never, and a function of its key alone."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from bertkit.corpus.masking import (
    MaskedSequence,
    MaskingConfig,
    Replacement,
    _take_fitting,
    generator,
    mask_batch,
    mask_tokens,
)
from bertkit.corpus.random import make_keys
from bertkit.errors import BertkitError

MASK_ID = 4
ORDINARY = np.arange(5, 1000)


def mask(length: int, key: int, config: MaskingConfig | None = None) -> tuple[np.ndarray, MaskedSequence]:
    ids = generator(99, key).integers(5, 1000, length)
    maskable = np.ones(length, dtype=bool)
    maskable[[0, -1]] = False
    return ids, mask_tokens(ids, maskable, mask_id=MASK_ID, ordinary_ids=ORDINARY, random=generator(key), config=config)


@given(st.integers(3, 200), st.integers(0, 2**32))
def test_each_sequence_masks_its_share_and_keeps_the_truth(length: int, key: int) -> None:
    ids, masked = mask(length, key)
    assert len(masked.positions) == max(1, round(0.15 * (length - 2)))
    assert (np.diff(masked.positions) > 0).all()
    assert 0 not in masked.positions
    assert length - 1 not in masked.positions
    assert (ids[masked.positions] == masked.targets).all()
    untouched = np.setdiff1d(np.arange(length), masked.positions)
    assert (masked.token_ids[untouched] == ids[untouched]).all()


def test_replacements_are_80_10_10() -> None:
    counts = np.zeros(3)
    for key in range(400):
        _, masked = mask(128, key)
        seen = masked.token_ids[masked.positions]
        counts += np.bincount(masked.replacements, minlength=3)
        assert (seen[masked.replacements == Replacement.MASK] == MASK_ID).all()
        same = masked.replacements == Replacement.SAME
        assert (seen[same] == masked.targets[same]).all()
        assert np.isin(seen[masked.replacements == Replacement.RANDOM], ORDINARY).all()
    assert chisquare(counts, counts.sum() * np.array([0.8, 0.1, 0.1])).pvalue > 0.001


def test_shares_and_rate_are_settable() -> None:
    _, masked = mask(100, 1, MaskingConfig(rate=0.4, mask_share=0.0, random_share=0.0))
    assert len(masked.positions) == round(0.4 * 98)
    assert (masked.replacements == Replacement.SAME).all()


def test_the_key_decides() -> None:
    assert (mask(100, 1)[1].positions == mask(100, 1)[1].positions).all()
    draws = [generator(1, 2).random(), generator(2, 1).random(), generator(1, 2, 0).random()]
    assert len(set(draws)) == 3


def test_bad_shares_are_refused() -> None:
    with pytest.raises(BertkitError, match="masking rate"):
        MaskingConfig(rate=0.0)
    with pytest.raises(BertkitError, match="masking shares"):
        MaskingConfig(mask_share=0.8, random_share=0.3)
    with pytest.raises(BertkitError, match="masking shares"):
        MaskingConfig(mask_share=float("nan"))


def test_the_draw_decides_the_replacement() -> None:
    _, masked = mask(5000, 3)
    expected = np.searchsorted([0.8, 0.9], masked.draws, side="right")
    assert (masked.replacements == expected).all()


def random_batch(count: int, key: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences of many lengths; ids divisible by 3 continue a word, ids below 5 are special."""
    random = generator(key)
    offsets = np.concatenate([[0], np.cumsum(random.integers(1, 60, count))])
    ids = random.integers(0, 1000, offsets[-1])
    return ids, offsets, make_keys(key, np.arange(count))


def mask_many(ids: np.ndarray, offsets: np.ndarray, keys: np.ndarray, config: MaskingConfig) -> MaskedSequence:
    return mask_batch(
        ids, ids >= 5, offsets, keys, mask_id=MASK_ID, ordinary_ids=ORDINARY, config=config, continues=ids % 3 == 0
    )


@pytest.mark.parametrize("whole_word", [False, True])
def test_a_sequence_is_masked_alike_alone_and_in_a_batch(whole_word: bool) -> None:
    ids, offsets, keys = random_batch(50, 1)
    config = MaskingConfig(whole_word=whole_word)
    together = mask_many(ids, offsets, keys, config)
    for n, (start, end) in enumerate(itertools.pairwise(offsets)):
        alone = mask_many(ids[start:end], np.array([0, end - start]), keys[n : n + 1], config)
        assert (alone.token_ids == together.token_ids[start:end]).all()


@given(st.integers(1, 40), st.integers(0, 10_000))
def test_every_sequence_of_a_batch_masks_its_share(count: int, key: int) -> None:
    ids, offsets, keys = random_batch(count, key)
    masked = mask_many(ids, offsets, keys, MaskingConfig())
    maskable = np.add.reduceat(ids >= 5, offsets[:-1], dtype=np.int64)
    chosen = np.bincount(np.searchsorted(offsets, masked.positions, side="right") - 1, minlength=count)
    assert (chosen == MaskingConfig().num_masked(maskable)).all()
    assert (ids[masked.positions] >= 5).all()
    assert (np.diff(masked.positions) > 0).all()


def words_of(ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The word that each token belongs to, -1 for special ones, by walking through the tokens."""
    words, word = np.full(len(ids), -1), -1
    starts = set(offsets.tolist())
    for index, token in enumerate(ids.tolist()):
        goes_on = token % 3 == 0 and index not in starts and ids[index - 1] >= 5
        word += not goes_on
        words[index] = word if token >= 5 else -1
    return words


@given(st.integers(1, 40), st.integers(0, 10_000))
def test_whole_words_are_masked_whole_and_replaced_alike(count: int, key: int) -> None:
    ids, offsets, keys = random_batch(count, key)
    masked = mask_many(ids, offsets, keys, MaskingConfig(whole_word=True))
    words = words_of(ids, offsets)
    chosen_words = words[masked.positions]
    assert (chosen_words >= 0).all()
    assert np.isin(words, chosen_words).sum() == len(masked.positions)
    for word in np.unique(chosen_words):
        assert len(set(masked.replacements[chosen_words == word].tolist())) == 1


def test_whole_words_take_as_many_tokens_as_fit_and_one_word_at_least() -> None:
    ids, offsets, keys = random_batch(400, 5)
    masked = mask_many(ids, offsets, keys, MaskingConfig(whole_word=True))
    maskable = np.add.reduceat(ids >= 5, offsets[:-1], dtype=np.int64)
    goals = MaskingConfig().num_masked(maskable)
    chosen = np.bincount(np.searchsorted(offsets, masked.positions, side="right") - 1, minlength=400)
    assert ((chosen > 0) == (goals > 0)).all()
    assert (chosen == goals).mean() > 0.95  # single-piece words fill the rest


def test_greedy_choice_of_words_is_that_of_a_loop() -> None:
    lengths, counts = np.array([3, 1, 2, 4, 1, 1, 5, 5, 2]), np.array([4, 3, 1])
    sequences, order = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2]), np.array([2, 0, 1, 3, 5, 4, 6, 7, 8])
    taken, left = set(), counts.tolist()
    for word in order.tolist():
        if lengths[word] <= left[sequences[word]]:
            taken.add(word)
            left[sequences[word]] -= lengths[word]
    taken.add(8)  # nothing fits into the last sequence's count of one: its shortest word
    assert set(np.flatnonzero(_take_fitting(order, lengths, sequences, counts)).tolist()) == taken


def test_whole_words_need_to_know_the_words() -> None:
    with pytest.raises(BertkitError, match="continue a word"):
        mask(20, 1, MaskingConfig(whole_word=True))


def test_nothing_to_mask_masks_nothing() -> None:
    ids, keys = np.array([1, 2]), make_keys(1)
    for whole_word in (False, True):
        masked = mask_many(ids, np.array([0, 2]), keys, MaskingConfig(whole_word=whole_word))
        assert len(masked.positions) == 0
