"""Scores of classes: hand-worked cases, and scikit-learn's numbers on random ones where it is there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.tasks.metrics import ClassMetrics, MultiLabelMetrics


def scored(gold: str, predicted: str, positive: str | None = None, labels: str = "abc") -> ClassMetrics:
    metrics = ClassMetrics(list(labels), positive)
    for true, found in zip(gold, predicted, strict=True):
        metrics.add(true, found)
    return metrics


def test_worked_by_hand() -> None:
    # true a: 6 (4 right, 2 called b); true b: 4 (3 right, 1 called a)
    metrics = scored("aaaaaabbbb", "aaaabbbbba", "b", labels="ab")
    assert metrics.confusion.tolist() == [[4, 2], [1, 3]]
    found = metrics.scores()
    assert found["accuracy"] == pytest.approx(0.7)
    assert found["f1"] == pytest.approx(2 * 3 / (5 + 4))
    assert found["macro_f1"] == pytest.approx((8 / 11 + 6 / 9) / 2)
    assert found["matthews"] == pytest.approx((4 * 3 - 2 * 1) / np.sqrt(6 * 4 * 5 * 5))
    assert metrics.majority() == 0.6
    a, b = metrics.per_class()
    assert (a.label, a.precision, a.recall, a.support) == ("a", 0.8, 4 / 6, 6)
    assert (b.precision, b.recall) == (0.6, 0.75)


def test_what_cannot_be_divided_is_nothing() -> None:
    assert scored("", "").scores() == {"accuracy": 0.0, "macro_f1": 0.0, "matthews": 0.0}
    assert scored("aabb", "aaaa").scores()["matthews"] == 0.0  # a collapsed run
    assert scored("aa", "aa").scores() == {"accuracy": 1.0, "macro_f1": 1.0, "matthews": 0.0}


def test_labels_must_differ() -> None:
    for labels in ([], ["a", "a"]):
        with pytest.raises(BertkitError, match="must be there and differ"):
            ClassMetrics(labels)
    with pytest.raises(BertkitError, match="positive label 'z'"):
        ClassMetrics(["a", "b"], positive="z")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=40))
def test_as_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    gold, predicted = map(list, zip(*pairs, strict=True))
    found = scored("".join(gold), "".join(predicted), "a").scores()
    precision = sklearn.f1_score(gold, predicted, labels=["a"], average="macro", zero_division=0)
    assert found["f1"] == pytest.approx(precision)
    assert found["accuracy"] == pytest.approx(sklearn.accuracy_score(gold, predicted))
    assert found["macro_f1"] == pytest.approx(sklearn.f1_score(gold, predicted, average="macro", zero_division=0))
    if len(set(gold) | set(predicted)) > 1:
        assert found["matthews"] == pytest.approx(sklearn.matthews_corrcoef(gold, predicted), abs=1e-12)


def test_several_classes_by_hand() -> None:
    metrics = MultiLabelMetrics(["a", "b", "c"])
    for gold, predicted in [(("a", "b"), ("a",)), (("b",), ("b", "c")), ((), ()), (("a",), ("b",))]:
        metrics.add(gold, predicted)
    # a: 1 of 1 predicted, 2 true; b: 1 of 2 predicted, 2 true; c: predicted once, never true
    found = metrics.scores()
    assert found["micro_f1"] == pytest.approx(2 * 2 / (4 + 4))
    assert found["macro_f1"] == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert (found["precision"], found["recall"], found["exact_match"]) == (0.5, 0.5, 0.25)
    assert [score.support for score in metrics.per_class()] == [2, 2, 0]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc"))), min_size=1, max_size=20))
def test_several_classes_as_scikit_learn(pairs: list[tuple[set[str], set[str]]]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    metrics = MultiLabelMetrics(["a", "b", "c"])
    for gold, predicted in pairs:
        metrics.add(gold, predicted)
    sides = [np.array([[label in side for label in "abc"] for side in sides]) for sides in zip(*pairs, strict=True)]
    for average in ("micro", "macro"):
        expected = sklearn.f1_score(*sides, average=average, zero_division=0)
        assert metrics.scores()[f"{average}_f1"] == pytest.approx(expected)
    assert metrics.scores()["exact_match"] == pytest.approx(sklearn.accuracy_score(*sides))
