"""Scores of answers by the rules of SQuAD 1.1 and 2.0, and the threshold below which a question is answered.

What enters: the gold answers of a question and the predicted text. What leaves: exact match and F1 in 0 to 1. A few
floats an example are kept for version 2.0, whose threshold is found afterwards.
"""

import re
import string
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.tasks.metrics.classes import ratio

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
Floats = NDArray[np.float64]


def normalize_answer(text: str) -> str:
    """Small letters, no punctuation, no articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(predicted: str, gold: str) -> float:
    """1 if both are the same answer."""
    return float(normalize_answer(predicted) == normalize_answer(gold))


def word_f1(predicted: str, gold: str) -> float:
    """The F1 of the words that both have; two answers without words are equal."""
    a, b = (normalize_answer(text).split() for text in (predicted, gold))
    if not a or not b:
        return float(a == b)
    return ratio(2 * (Counter(a) & Counter(b)).total(), len(a) + len(b))


class SquadMetrics:
    """SQuAD 1.1: every question has an answer; none predicted (None) is wrong."""

    def __init__(self) -> None:
        self.num_questions = 0
        self.exact = self.f1 = 0.0

    def add(self, golds: Sequence[str], predicted: str | None) -> None:
        """One more question; the best over its gold answers counts."""
        self.num_questions += 1
        if predicted is not None:
            self.exact += max((exact_match(predicted, gold) for gold in golds), default=0.0)
            # Version 1.1 gives nothing for words that are not there, even when both sides have none.
            found = normalize_answer(predicted)
            self.f1 += max((word_f1(predicted, gold) for gold in golds), default=0.0) if found else 0.0

    def scores(self) -> dict[str, float]:
        """Means over all questions."""
        return {"exact_match": ratio(self.exact, self.num_questions), "f1": ratio(self.f1, self.num_questions)}


@dataclass(frozen=True)
class BestThreshold:
    """The score, and the threshold that gives it: a question is answered if its no-answer score is not above it."""

    score: float
    threshold: float


class SquadV2Metrics:
    """SQuAD 2.0: some questions have no answer (no golds); a predicted text holds only up to the threshold."""

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = threshold
        self._answerable, self._silent, self._exact, self._f1, self._no_answer = (array("d") for _ in range(5))

    def add(self, golds: Sequence[str], predicted: str | None, no_answer: float = 0.0) -> None:
        """One more question: its best text ("" for none) and how much speaks for no answer."""
        real = [gold for gold in golds if normalize_answer(gold)] or [""]
        text = predicted or ""
        self._answerable.append(float(bool(golds)))
        self._silent.append(float(not text))
        self._exact.append(max(exact_match(text, gold) for gold in real))
        self._f1.append(max(word_f1(text, gold) for gold in real))
        self._no_answer.append(no_answer)

    def scores(self) -> dict[str, float]:
        """Means over all questions, over those with an answer, and over those without."""
        answerable = self._floats(self._answerable) > 0
        exact, f1 = (self._thresholded(values) for values in (self._exact, self._f1))
        groups = {"": np.full(len(exact), True), "answer_": answerable, "no_answer_": ~answerable}
        found = {}
        for name, chosen in groups.items():
            if chosen.any() or not name:
                found[f"{name}exact_match"] = ratio(exact[chosen].sum(), chosen.sum())
                found[f"{name}f1"] = ratio(f1[chosen].sum(), chosen.sum())
        return found

    def best_exact(self) -> BestThreshold:
        """The threshold with the best exact match."""
        return self._best(self._floats(self._exact))

    def best_f1(self) -> BestThreshold:
        """The threshold with the best F1."""
        return self._best(self._floats(self._f1))

    def _best(self, scores: Floats) -> BestThreshold:
        """Questions are answered in the order of their no-answer scores; the sum of scores is largest at the best place."""
        if not scores.size:
            return BestThreshold(0.0, self.threshold)
        no_answer, answerable = self._floats(self._no_answer), self._floats(self._answerable)
        order = np.argsort(no_answer, kind="stable")
        gains = np.where(answerable > 0, scores, self._floats(self._silent) - 1.0)[order]
        totals = (1 - answerable).sum() + np.concatenate([[0.0], np.cumsum(gains)])
        places = no_answer[order]
        # Equal no-answer scores are answered together; before the first, nothing is.
        ends = np.append(np.flatnonzero(np.append(np.diff(places) > 0, True)) + 1, 0)
        best = int(max(sorted(ends.tolist()), key=lambda end: totals[end]))
        threshold = places[best - 1] if best else places[0] - 1.0
        return BestThreshold(float(totals[best] / len(scores)), float(threshold))

    def _thresholded(self, scores: "array[float]") -> Floats:
        """The score of what is said: nothing where the no-answer score is above the threshold."""
        is_kept = self._floats(self._no_answer) <= self.threshold
        return np.where(is_kept, self._floats(scores), 1 - self._floats(self._answerable))

    @staticmethod
    def _floats(values: "array[float]") -> Floats:
        return np.array(values, dtype=np.float64)
