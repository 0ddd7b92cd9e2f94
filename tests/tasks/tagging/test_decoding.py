"""The best legal sequence against all sequences tried, and entities that stand where they say."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.tasks.reading.examples import TagExample
from bertkit.tasks.tagging.decoding import best_sequence, located, log_softmax, predict_tags
from bertkit.tasks.tagging.labels import TagScheme

BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
BIOES = ("O", "B-X", "I-X", "E-X", "S-X")
IO = ("O", "I-PER", "I-LOC")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([BIO, BIOES, IO, ("I-X", "E-X", "O")]))
def test_viterbi_finds_the_best_of_all_legal_sequences(seed: int, num_words: int, labels: tuple[str, ...]) -> None:
    log_probabilities = log_softmax(np.random.default_rng(seed).normal(scale=2.0, size=(num_words, len(labels))))
    scheme = TagScheme(labels)
    legal = [ids for ids in product(range(len(labels)), repeat=num_words) if scheme.is_legal(np.array(ids))]
    best = max(legal, key=lambda ids: sum(log_probabilities[word, label] for word, label in enumerate(ids)))
    assert best_sequence(log_probabilities, scheme).tolist() == list(best)


def test_where_nothing_is_legal_each_word_has_its_best_label() -> None:
    scheme = TagScheme(("B-X", "I-X", "E-X"))
    assert best_sequence(log_softmax(np.array([[0.0, 1.0, 5.0]])), scheme).tolist() == [2]


def test_a_prediction_by_hand() -> None:
    example = TagExample(("Wolfgang", "Amadeus", "lives", "in", "Berlin"))
    probabilities = np.array(
        [
            [0.1, 0.6, 0.1, 0.1, 0.1],
            [0.1, 0.1, 0.2, 0.1, 0.5],  # I-LOC after B-PER is illegal
            [0.9, 0.025, 0.025, 0.025, 0.025],
            [0.9, 0.025, 0.025, 0.025, 0.025],
            [0.1, 0.0, 0.0, 0.2, 0.7],  # I-LOC after O too
        ]
    )
    with np.errstate(divide="ignore"):
        prediction = predict_tags(example, np.log(probabilities), TagScheme(BIO))
    assert prediction.tags == ("B-PER", "I-PER", "O", "O", "B-LOC")
    person, place = prediction.entities
    assert (person.kind, person.text, person.start, person.end) == ("PER", "Wolfgang Amadeus", 0, 16)
    assert (person.first_word, person.last_word) == (0, 1)
    assert person.confidence == pytest.approx(0.6 * 0.2)
    assert (place.text, place.start, place.end) == ("Berlin", 26, 32)
    assert place.confidence == pytest.approx(0.2)


def test_words_that_were_cut_are_outside() -> None:
    prediction = predict_tags(TagExample(("a", "b", "c")), np.array([[0.0, 9.0, 0, 0, 0]]), TagScheme(BIO))
    assert (prediction.tags, prediction.num_cut) == (("B-PER", "O", "O"), 2)
    assert predict_tags(TagExample(("a",)), np.zeros((0, 5)), TagScheme(BIO)).tags == ("O",)
    assert predict_tags(TagExample(()), np.zeros((0, 5)), TagScheme(BIO)).tags == ()


@given(st.lists(st.text(min_size=1, max_size=5), max_size=12), st.integers(0, 10**6), st.sampled_from([BIO, BIOES, IO]))
def test_entities_of_any_words_stand_where_they_say(words: list[str], seed: int, labels: tuple[str, ...]) -> None:
    example = TagExample(tuple(words))
    logits = np.random.default_rng(seed).normal(size=(len(words), len(labels)))
    prediction = predict_tags(example, logits, TagScheme(labels))
    text, _ = located(example)
    assert len(prediction.tags) == len(words)
    for entity in prediction.entities:
        assert (
            text[entity.start : entity.end] == entity.text == " ".join(words[entity.first_word : entity.last_word + 1])
        )
        assert 0.0 < entity.confidence <= 1.0
