"""SQuAD's scores: the official rules on cases worked by hand, and the best threshold against trying all of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.tasks.metrics import SquadMetrics, SquadV2Metrics, normalize_answer
from bertkit.tasks.metrics.answers import exact_match, word_f1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Broncos!", "broncos"),
        ("a an the", ""),
        ("U.S.A.", "usa"),  # punctuation goes before articles
        ("theatre an-other", "theatre another"),
        ("it's A-level", "its alevel"),
        ("«Élan» – the", "«élan» –"),  # only ASCII punctuation goes
        ("a\tb\nc", "b c"),
    ],
)
def test_normalizing(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


def test_word_f1() -> None:
    assert word_f1("Denver Broncos", "the Denver Broncos team") == pytest.approx(2 * 2 / (2 + 3))
    assert word_f1("to be or not to be", "to be to") == pytest.approx(
        2 * 3 / (6 + 3)
    )  # words count as often as they come
    assert word_f1("x", "y") == 0.0
    assert (word_f1("the", "a"), word_f1("", "x")) == (1.0, 0.0)
    assert exact_match("The Denver Broncos.", "denver broncos") == 1.0


def test_version_1() -> None:
    metrics = SquadMetrics()
    metrics.add(["October 1973", "October"], "in October 1973")  # best over golds: 2*2/(3+2)
    metrics.add(["1974"], "1974")
    metrics.add(["never answered"], None)
    metrics.add(["The"], "the")  # equal, but without words: the official F1 is 0
    assert metrics.scores() == {"exact_match": pytest.approx(2 / 4), "f1": pytest.approx((0.8 + 1 + 0 + 0) / 4)}
    assert SquadMetrics().scores() == {"exact_match": 0.0, "f1": 0.0}


def test_version_2_with_and_without_answers() -> None:
    metrics = SquadV2Metrics(threshold=0.0)
    metrics.add(["Rome"], "Rome", -2.0)
    metrics.add(["Rome", "the city"], "city of Rome", -1.0)  # F1 2*1/(3+1)
    metrics.add(["Rome"], "Rome", 3.0)  # above the threshold: says nothing, wrong
    metrics.add([], "Rome", 1.0)  # says nothing, right
    metrics.add([], "Rome", -3.0)
    metrics.add([], "", -3.0)
    assert metrics.scores() == pytest.approx(
        {
            "exact_match": 3 / 6,
            "f1": 3.5 / 6,
            "answer_exact_match": 1 / 3,
            "answer_f1": 1.5 / 3,
            "no_answer_exact_match": 2 / 3,
            "no_answer_f1": 2 / 3,
        }
    )


def test_the_best_threshold_by_hand() -> None:
    metrics = SquadV2Metrics()
    for golds, text, score in [
        (["a1"], "a1", -5.0),
        ([], "x", -4.0),
        (["b"], "b", -3.0),
        (["c"], "c", -2.0),
        ([], "y", 1.0),
    ]:
        metrics.add(golds, text, score)
    best = metrics.best_exact()
    assert (best.score, best.threshold) == (4 / 5, -2.0)
    silent = SquadV2Metrics()
    silent.add([], "x", 0.5)
    silent.add(["Rome"], "wrong", 0.7)
    best = silent.best_f1()  # best is to say nothing at all
    assert best.score == 0.5
    silent.threshold = best.threshold
    assert silent.scores()["f1"] == 0.5
    assert SquadV2Metrics(0.25).best_f1().threshold == 0.25


questions = st.tuples(
    st.booleans(), st.sampled_from(["", "right", "right word", "wrong"]), st.sampled_from([-1.5, 0.0, 0.5, 2.0])
)


@settings(max_examples=200, deadline=None)
@given(st.lists(questions, min_size=1, max_size=12))
def test_no_threshold_is_better_than_the_best(given_questions: list[tuple[bool, str, float]]) -> None:
    metrics = SquadV2Metrics()
    for answerable, text, score in given_questions:
        metrics.add(["right"] if answerable else [], text, score)

    def at(threshold: float, name: str) -> float:
        metrics.threshold = threshold
        return metrics.scores()[name]

    for name, best in (("exact_match", metrics.best_exact()), ("f1", metrics.best_f1())):
        assert at(best.threshold, name) == pytest.approx(best.score)
        assert best.score == pytest.approx(max(at(place, name) for place in (-9.0, -1.5, 0.0, 0.5, 2.0)))
    assert np.isfinite(metrics.best_f1().threshold)
