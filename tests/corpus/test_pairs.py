"""Sentence pairs: half really next, B from another document, everything fits, nothing is lost."""

import numpy as np
import pytest
from scipy.stats import binomtest, ks_2samp

from bertkit.corpus.masking import generator
from bertkit.corpus.pairs import NUM_SPECIAL, PairConfig, Side, draw_pairs, truncate_pair
from bertkit.corpus.random import draw_uniform, make_keys
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


def side(sentences: list[int], count: int) -> Side:
    """The same side `count` times, from its sentences' lengths."""
    total, first, last = (np.full(count, number) for number in (sum(sentences), sentences[0], sentences[-1]))
    return Side(np.zeros(count, dtype=np.int64), total, first, last)


def cut(a: list[int], b: list[int], room: int, count: int = 1000) -> tuple[np.ndarray, ...]:
    return truncate_pair(
        side(a, count), side(b, count), room, draw_uniform(make_keys(1), np.arange(2 * count)).reshape(2, -1)
    )


def test_truncation_takes_from_both_ends_of_the_longer_side() -> None:
    a_starts, a_lengths, b_starts, b_lengths = cut([100], [10], 40)
    assert (a_lengths == 30).all()
    assert (b_lengths == 10).all()
    assert (b_starts == 0).all()
    assert a_starts.min() == 0
    assert a_starts.max() == 70
    assert abs(a_starts.mean() - 35) < 3


def test_two_long_sides_share_the_room() -> None:
    _, a_lengths, _, b_lengths = cut([90], [80], 125)
    assert (a_lengths == 63).all()
    assert (b_lengths == 62).all()


def test_truncation_takes_no_sentence_whole() -> None:
    a_starts, a_lengths, b_starts, b_lengths = cut([5, 100, 5], [4, 56], 125)
    assert (a_starts < 5).all()
    assert (a_starts + a_lengths > 105).all()
    assert (b_starts < 4).all()
    assert (b_starts + b_lengths > 4).all()
    assert (a_lengths + b_lengths == 125).all()


def test_what_fits_is_left_alone() -> None:
    a_starts, a_lengths, b_starts, b_lengths = cut([20, 30], [40], 125)
    assert (a_starts + b_starts == 0).all()
    assert (a_lengths + b_lengths == 90).all()


def test_one_document_has_no_strangers() -> None:
    with pytest.raises(BertkitError, match="at least two"):
        list(draw_pairs(DOCUMENTS[:1], PairConfig(), generator(1)))


def test_bad_shares_and_lengths_are_refused() -> None:
    with pytest.raises(BertkitError, match="8 or more"):
        PairConfig(max_length=4)
    with pytest.raises(BertkitError, match="short_share is 2"):
        PairConfig(short_share=2)
