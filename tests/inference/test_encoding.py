"""One text in detail: tokens, layers, [CLS] raw and pooled, attention, words with their spans."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import BertkitError, LongTextError
from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from bertkit.model import pack


def test_encode_gives_every_layer_and_cls(bert: Bert) -> None:
    encoded = bert.encode("My dog is cute", "he likes playing")
    num_tokens = len(encoded.tokens)
    assert encoded.layers.shape == (bert.config.num_layers + 1, num_tokens, bert.config.hidden_size)
    assert encoded.tokens[0] == "[CLS]"
    assert encoded.segment_ids[0] == 0
    assert encoded.segment_ids[-1] == 1
    assert len(encoded.offsets) == len(encoded.token_ids) == num_tokens
    with torch.no_grad():
        hidden = bert.model.encoder(pack([encoded.token_ids], [encoded.segment_ids]))
        pooled = bert.model.pooled(hidden[:1])[0]
    assert np.abs(encoded.vectors - hidden.numpy()).max() < 1e-5
    assert np.array_equal(encoded.cls, encoded.vectors[0])
    assert encoded.pooled is not None
    assert np.abs(encoded.pooled - pooled.numpy()).max() < 1e-5


def test_without_a_pooler_there_is_no_pooled_vector(bert: Bert) -> None:
    from bertkit.inference.fresh import untrained

    assert untrained(0, heads=("mlm",)).encode("dog").pooled is None


def test_attention_sums_to_one(bert: Bert) -> None:
    attention = bert.attention("My dog is cute", "he likes playing")
    num_tokens = len(attention.tokens)
    assert attention.weights.shape == (bert.config.num_layers, bert.config.num_heads, num_tokens, num_tokens)
    assert np.allclose(attention.weights.sum(-1), 1.0, atol=1e-5)


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_words_stand_where_they_say(text: str) -> None:
    from bertkit.inference.fresh import untrained

    global _cached  # noqa: PLW0603 - hypothesis cannot take the session's fixture
    _cached = _cached or untrained(0)
    words = _cached.word_vectors(text)
    assert all(text[word.start : word.end] == word.word for word in words)
    assert [word.start for word in words] == sorted(word.start for word in words)
    covered = {i for word in words for i in range(word.start, word.end)}
    letters = {i for i, character in enumerate(text) if character.isascii() and character.isalnum()}
    assert letters <= covered


_cached: Bert | None = None


def test_a_word_is_the_mean_of_its_pieces(bert: Bert) -> None:
    text = "The penguinlike bird"
    encoded = bert.encode(text)
    word = bert.word_vectors(text)[1]
    rows = [i for i, (start, end) in enumerate(encoded.offsets) if start >= 4 and end <= 15 and end > start]
    assert len(rows) > 1
    assert word.word == "penguinlike"
    assert np.allclose(word.vector, encoded.vectors[rows].mean(0))


def test_own_spans(bert: Bert) -> None:
    (word,) = bert.word_vectors("He didn't stay", spans=[(3, 9)], layer=1)
    assert word.word == "didn't"
    with pytest.raises(BertkitError, match="no token stands in characters 2 to 3"):
        bert.word_vectors("He didn't stay", spans=[(2, 3)])


def test_long_texts_are_refused_by_default(bert: Bert) -> None:
    for method in (bert.encode, bert.attention, bert.word_vectors, bert.pseudo_likelihood):
        with pytest.raises(LongTextError, match="512"):
            method("the dog " * 600)
    with pytest.raises(BertkitError, match="must be 'error' or 'truncate'"):
        bert.encode("dog", long="window")


def test_a_causal_model_pools_what_its_nsp_head_reads() -> None:
    bert = untrained(0, num_layers=1, is_causal=True, initializer_range=0.2)
    pair = ("The dog sleeps.", "A cat too.")
    pooled = bert.encode(*pair).pooled
    assert pooled is not None
    assert bert.model.nsp is not None
    with torch.no_grad():
        logits = bert.model.nsp(torch.from_numpy(pooled))
    assert logits.softmax(-1)[0].item() == pytest.approx(bert.next_sentence(*pair), abs=1e-6)
