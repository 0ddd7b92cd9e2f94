"""Sentence pairs: half really next, B from another document, everything fits, nothing is lost."""

import numpy as np
import pytest
from scipy.stats import binomtest, ks_2samp

from bertkit.corpus.masking import generator
from bertkit.corpus.pairs import NUM_SPECIAL, PairConfig, draw_pairs, truncate_pair
from bertkit.errors import BertkitError

# token = 1000 x document + its place in the document, so that a token tells where it came from
DOCUMENTS = [[[1000 * d + 10 * s + t for t in range(3 + (d + s) % 5)] for s in range(12)] for d in range(60)]


def test_pairs_are_what_they_say() -> None:
    for pair in draw_pairs(DOCUMENTS, PairConfig(max_length=48), generator(1)):
        document_a, document_b = {t // 1000 for t in pair.a}, {t // 1000 for t in pair.b}
        assert len(document_a) == len(document_b) == 1
        assert (document_a == document_b) == pair.is_next
        assert not pair.is_next or min(pair.b) > max(pair.a)
        assert len(pair.a) + len(pair.b) <= 48 - NUM_SPECIAL


def test_half_are_next() -> None:
    config = PairConfig(max_length=32)
    labels = [pair.is_next for epoch in range(10) for pair in draw_pairs(DOCUMENTS, config, generator(2, epoch))]
    assert binomtest(sum(labels), len(labels), 0.5).pvalue > 0.001


def test_lengths_do_not_give_the_answer_away() -> None:
    pairs = [
        pair for epoch in range(20) for pair in draw_pairs(DOCUMENTS, PairConfig(max_length=48), generator(4, epoch))
    ]
    for side in ("a", "b"):
        lengths = [[len(getattr(pair, side)) for pair in pairs if pair.is_next == label] for label in (True, False)]
        assert ks_2samp(*lengths).pvalue > 0.001, side


def test_the_unused_half_goes_back() -> None:
    config = PairConfig(max_length=200, short_share=0.0)
    seen = {token for pair in draw_pairs(DOCUMENTS, config, generator(3)) for token in (*pair.a, *pair.b)}
    assert seen == {token for document in DOCUMENTS for sentence in document for token in sentence}


def test_truncation_takes_from_both_ends_of_the_longer_side() -> None:
    a, b = list(range(100)), list(range(100, 110))
    truncate_pair(a, b, 40, np.random.default_rng(0))
    assert len(a) == 30
    assert b == list(range(100, 110))
    assert a == list(range(a[0], a[-1] + 1))
    assert 0 < a[0] < 70


def test_one_document_has_no_strangers() -> None:
    with pytest.raises(BertkitError, match="at least two"):
        list(draw_pairs(DOCUMENTS[:1], PairConfig(), generator(1)))
