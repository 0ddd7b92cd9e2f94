"""Masking: 15 % of a sequence, 80/10/10, special tokens never, and a function of its key alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from bertkit.corpus.masking import MaskedSequence, MaskingConfig, Replacement, generator, mask_tokens
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
