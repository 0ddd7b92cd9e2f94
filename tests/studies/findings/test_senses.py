"""Fixed vectors cannot tell senses: one form has the cosine 1 whatever stands around it."""

from pathlib import Path

import numpy as np
import pytest

from bertkit.inference.bert import Bert
from bertkit.studies.findings.senses import (
    NUM_DRAWS,
    draw_counts,
    drawn_scores,
    input_row_cosines,
    marked_words,
    ranking,
    same_form,
    sense_scores,
    word2vec_cosines,
)
from bertkit.studies.word_in_context import SensePair, read_sense_pairs
from tests.pages.tiny import tiny_bert


def pair(first: str, second: str, word: str, other: str, is_same: bool) -> SensePair:
    spans = [
        (text.index(marked), text.index(marked) + len(marked)) for text, marked in ((first, word), (second, other))
    ]
    return SensePair((first, second), (spans[0], spans[1]), is_same)


PAIRS = [
    pair("fun fair in new york", "he likes fair treatment", "fair", "fair", False),
    pair("fun Fair in new york", "the fair city", "Fair", "fair", True),  # the casing goes with the tokenizer
    pair("he likes playing", "the dogs", "playing", "dogs", False),
]


def test_one_form_has_cosine_one_in_every_fixed_space() -> None:
    bert = tiny_bert()
    words = marked_words(PAIRS, bert.tokenizer)
    assert words == [(["fair"], ["fair"]), (["fair"], ["fair"]), (["playing"], ["dogs"])]
    assert same_form(words).tolist() == [True, True, False]
    rows = input_row_cosines(bert, PAIRS)
    assert rows[:2].tolist() == [1.0, 1.0]
    table = bert.model.encoder.embeddings.token.weight.detach().numpy()
    left = table[bert.tokenizer.id("playing")]
    right = table[[bert.tokenizer.id("dog"), bert.tokenizer.id("##s")]].mean(0)
    assert rows[2] == pytest.approx(left @ right / np.linalg.norm(left) / np.linalg.norm(right), abs=1e-6)


def test_words_without_a_vector() -> None:
    words = [(["a"], ["a"]), (["a"], ["b"]), (["a"], ["c"]), (["b", "c"], ["b"])]
    vectors = {"b": np.array([1.0, 0.0], np.float32), "c": np.array([0.0, 1.0], np.float32)}
    assert word2vec_cosines(words, vectors).tolist() == pytest.approx([1.0, 0.0, 0.0, 0.5**0.5])


def test_a_fixed_vector_ranks_one_form_at_chance() -> None:
    cosines = {"training": np.array([1, 1, 1, 0.2], np.float32), "test": np.array([1, 1, 0.1, 1], np.float32)}
    truths = {"training": np.array([True, True, False, False]), "test": np.array([True, False, False, False])}
    found = sense_scores(cosines, truths, np.array([True, True, False, True]))
    assert found == {"accuracy": 50.0, "training": 75.0, "ranking": 50.0}
    assert "ranking" not in sense_scores(cosines, truths, np.zeros(4, bool))


def test_ranking_counts_pairs_in_the_right_order() -> None:
    cosines, truths = np.array([0.9, 0.5, 0.5, 0.1], np.float32), np.array([True, True, False, False])
    assert ranking(cosines, truths) == (1 + 1 + 0.5 + 1) / 4
    assert ranking(cosines, np.ones(4, bool)) is None


def test_words_are_drawn_with_all_their_pairs() -> None:
    counts = draw_counts(["play", "play", "fair", "fair", "gently"])
    assert counts.shape == (NUM_DRAWS, 5)
    assert (counts[:, 0] == counts[:, 1]).all()
    assert (counts[:, [0, 2, 4]].sum(axis=1) == 3).all()  # as many words as there are
    assert (counts == draw_counts(["play", "play", "fair", "fair", "gently"])).all()  # the same for every arm


def test_draws_lie_around_the_score() -> None:
    random = np.random.default_rng(1)
    truth = np.arange(200) % 2 == 0
    cosines = (0.3 * truth + random.normal(0.0, 0.5, 200)).astype(np.float32)
    sets, truths = {"training": cosines, "test": cosines}, {"training": truth, "test": truth}
    same = np.arange(200) < 150
    scores = sense_scores(sets, truths, same)
    drawn = drawn_scores(sets, truths, same, draw_counts([str(number // 2) for number in range(200)]))
    for name in ("accuracy", "ranking"):
        assert np.mean(drawn[name]) == pytest.approx(scores[name], abs=0.5)
        assert 2.0 < np.std(drawn[name]) < 6.0
    fixed = {split: np.ones(200, np.float32) for split in sets}
    assert set(drawn_scores(fixed, truths, same, draw_counts(["a", "b"] * 100))["ranking"]) == {50.0}  # in every draw


def test_a_draw_without_pairs_to_rank_is_chance() -> None:
    cosines, truth = np.array([0.9, 0.1], np.float32), np.array([True, False])
    sets, truths = {"training": cosines, "test": cosines}, {"training": truth, "test": truth}
    drawn = drawn_scores(sets, truths, np.ones(2, bool), draw_counts(["a", "b"]))
    assert set(drawn["ranking"]) == {50.0, 100.0}
    assert "ranking" not in drawn_scores(sets, truths, np.zeros(2, bool), draw_counts(["a", "b"]))


def test_the_toy_set_is_all_one_form(bert: Bert, data: Path) -> None:
    pairs = read_sense_pairs(data / "tasks" / "mcl-wic-en", "test")
    assert input_row_cosines(bert, pairs).tolist() == [1.0] * len(pairs)
