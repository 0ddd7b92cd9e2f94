"""TF-IDF with logistic regression (ridge regression for numbers): what BERT has to beat on texts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.tasks.baseline.features import TfIdf
from bertkit.tasks.baseline.linear import fit_logistic, fit_ridge, logits, softmax
from bertkit.tasks.reading.examples import Label, TextExample
from bertkit.tasks.reading.labels import ProblemType

RIDGE_STRENGTH = 1.0
MANY_FEATURES = 2_000_000  # from here on, features that come once are left out


class TextBaseline:
    """A linear model over words, pairs of words and, for two texts, what they share."""

    name = "TF-IDF with logistic regression"

    def __init__(self, examples: Sequence[TextExample], problem: ProblemType = "single_label") -> None:
        if not examples:
            raise BertkitError("the baseline has nothing to learn from; give examples")
        self.problem = problem
        if problem == "regression":
            self.name = "TF-IDF with ridge regression"
        self.features = TfIdf(examples)
        if len(self.features.index) > MANY_FEATURES:
            self.features = TfIdf(examples, least=2)
        rows = self.features.transform(examples)
        self.labels = sorted({name for example in examples for name in _names(example.label)})
        if problem == "regression":
            self.weights = [fit_ridge(rows, np.array([_number(example) for example in examples]), RIDGE_STRENGTH)]
        elif problem == "single_label":
            places = {label: place for place, label in enumerate(self.labels)}
            targets = np.array([places[str(example.label)] for example in examples])
            self.weights = [fit_logistic(rows, targets, max(2, len(self.labels)))]
        else:
            has = [
                np.array([label in _names(example.label) for example in examples]).astype(int) for label in self.labels
            ]
            self.weights = [fit_logistic(rows, targets, 2) for targets in has]

    def predict(self, examples: Sequence[TextExample]) -> list[Label]:
        """A label each."""
        rows = self.features.transform(examples).with_bias()
        if self.problem == "regression":
            return [float(value) for value in rows.times(self.weights[0])[:, 0]]
        outputs = [logits(rows, weights) for weights in self.weights]
        if self.problem == "single_label":
            return [self.labels[place] for place in outputs[0][:, : len(self.labels)].argmax(axis=1)]
        chances: NDArray[np.float64] = np.stack([softmax(output)[:, 1] for output in outputs], axis=1)
        return [tuple(label for label, p in zip(self.labels, row, strict=True) if p > 0.5) for row in chances]


def _names(label: Label | None) -> tuple[str, ...]:
    if label is None:
        raise BertkitError("the baseline learns from labelled examples; one of these has no label")
    return label if isinstance(label, tuple) else (str(label),)


def _number(example: TextExample) -> float:
    if not isinstance(example.label, float | int):
        raise BertkitError(f"the label {example.label!r} is not a number; regression needs numbers")
    return float(example.label)
