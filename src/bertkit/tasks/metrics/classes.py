"""Scores of classes, added up one example at a time: accuracy, F1 (binary, macro, micro), Matthews' correlation.

What enters: the true label and the predicted one. What leaves: scores in 0 to 1 (Matthews -1 to 1). Only counts are
kept. A score that is divided by nothing (a class that was never predicted, say) is 0, as is usual.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.errors import BertkitError


@dataclass(frozen=True)
class ClassScore:
    """How well one class was found."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int  # how many there truly are


def ratio(part: float, whole: float) -> float:
    """A share; of nothing it is 0."""
    return float(part / whole) if whole else 0.0


def score_class(label: str, hits: int, predicted: int, support: int) -> ClassScore:
    """Precision, recall and F1 from three counts."""
    return ClassScore(
        label, ratio(hits, predicted), ratio(hits, support), ratio(2 * hits, predicted + support), support
    )


def index_labels(labels: Sequence[str]) -> dict[str, int]:
    """The place of every label; a label twice is an error."""
    if len(set(labels)) < len(labels) or not labels:
        raise BertkitError(f"labels must be there and differ: {', '.join(labels) or 'none'}")
    return {label: index for index, label in enumerate(labels)}


class ClassMetrics:
    """One class each: a table of true against predicted, and what follows from it."""

    def __init__(self, labels: Sequence[str], positive: str | None = None) -> None:
        self.labels = tuple(labels)
        self._index = index_labels(labels)
        if positive is not None and positive not in self._index:
            raise BertkitError(f"the positive label {positive!r} is none of {', '.join(labels)}")
        self.positive = positive  # with it, `f1` is that of this class
        self.confusion = np.zeros((len(labels), len(labels)), dtype=np.int64)  # [true, predicted]

    def add(self, gold: str, predicted: str) -> None:
        """One more example."""
        self.confusion[self._index[gold], self._index[predicted]] += 1

    def per_class(self) -> list[ClassScore]:
        """Every class by itself, in the labels' order."""
        counts = zip(self.labels, np.diag(self.confusion), self.confusion.sum(0), self.confusion.sum(1), strict=True)
        return [score_class(label, int(hits), int(found), int(true)) for label, hits, found, true in counts]

    def accuracy(self) -> float:
        """The share of right ones."""
        return ratio(np.trace(self.confusion), self.confusion.sum())

    def majority(self) -> float:
        """The accuracy of always saying the most frequent class of these examples."""
        return ratio(self.confusion.sum(1).max(), self.confusion.sum())

    def macro_f1(self) -> float:
        """The mean F1 of the classes that are true or predicted at least once."""
        seen = (self.confusion.sum(0) + self.confusion.sum(1)) > 0
        found = [score.f1 for score, is_seen in zip(self.per_class(), seen, strict=True) if is_seen]
        return ratio(sum(found), len(found))

    def matthews(self) -> float:
        """Matthews' correlation, for any number of classes (the R_K statistic)."""
        true, found = (self.confusion.sum(axis).astype(float) for axis in (1, 0))
        total, right = float(self.confusion.sum()), float(np.trace(self.confusion))
        spread = (total**2 - true @ true) * (total**2 - found @ found)
        return ratio(right * total - true @ found, spread**0.5)

    def scores(self) -> dict[str, float]:
        """Every score by name; `f1` only where a positive label is named."""
        found = {"accuracy": self.accuracy(), "macro_f1": self.macro_f1(), "matthews": self.matthews()}
        if self.positive is not None:
            found["f1"] = self.per_class()[self._index[self.positive]].f1
        return found


class MultiLabelMetrics:
    """Any number of classes each: every class counts its hits."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self._index = index_labels(labels)
        self.hits, self.predicted, self.support = (np.zeros(len(labels), dtype=np.int64) for _ in range(3))
        self.num_examples = self.num_exact = 0

    def add(self, gold: Collection[str], predicted: Collection[str]) -> None:
        """One more example."""
        true, found = set(gold), set(predicted)
        for names, counts in ((true & found, self.hits), (found, self.predicted), (true, self.support)):
            counts[[self._index[name] for name in names]] += 1
        self.num_examples += 1
        self.num_exact += true == found

    def per_class(self) -> list[ClassScore]:
        """Every class by itself, in the labels' order."""
        counts = zip(self.labels, self.hits, self.predicted, self.support, strict=True)
        return [score_class(label, int(hits), int(found), int(true)) for label, hits, found, true in counts]

    def scores(self) -> dict[str, float]:
        """Micro (all decisions together), macro (the mean of the classes), and the share of examples wholly right."""
        micro = score_class("", int(self.hits.sum()), int(self.predicted.sum()), int(self.support.sum()))
        macro = ratio(sum(score.f1 for score in self.per_class()), len(self.labels))
        return {
            "micro_f1": micro.f1,
            "macro_f1": macro,
            "precision": micro.precision,
            "recall": micro.recall,
            "exact_match": ratio(self.num_exact, self.num_examples),
        }
