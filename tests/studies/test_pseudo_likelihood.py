"""The fast scorer says what the plain one says, whatever the texts' lengths and the size of a batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import BertkitError, LongTextError
from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from bertkit.studies.pseudo_likelihood import TextScorer

TEXTS = [
    "The dog sleeps.",
    "A cat is asleep on the mat.",
    "Yes.",
    "The dog barks at the man.",
    "A cat is asleep on a mat.",
]


WORDS = ["the", "dog", "a", "man", "sleeps", "barks", "fair"]


@pytest.mark.parametrize("max_tokens", [1, 30, 4096])
def test_it_is_the_sum_of_log_probabilities_with_one_token_masked(bert: Bert, max_tokens: int) -> None:
    expected = [bert.pseudo_likelihood(text).total for text in TEXTS]
    np.testing.assert_allclose(TextScorer(bert, max_tokens).score(TEXTS), expected, rtol=1e-5)


@settings(max_examples=15, deadline=None)
@given(words=st.lists(st.lists(st.sampled_from(WORDS), max_size=7), max_size=6))
def test_any_lengths_in_any_order(bert: Bert, words: list[list[str]]) -> None:
    texts = [" ".join(one) for one in words]
    expected = [bert.pseudo_likelihood(text).total if text else 0.0 for text in texts]
    np.testing.assert_allclose(TextScorer(bert, 40).score(texts), expected, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_scored_is_refused(bert: Bert) -> None:
    with pytest.raises(LongTextError, match="64 positions"):
        TextScorer(bert).score(["dog " * 80])
    with pytest.raises(BertkitError, match="no MLM head"):
        TextScorer(untrained(0, num_layers=1, heads=("pooler",)))
