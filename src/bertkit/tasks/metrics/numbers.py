"""Scores of numbers: Pearson's and Spearman's correlation, and the mean squared error. Two floats an example are kept."""

from array import array

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """The linear correlation; 0 where one side does not vary, because nothing can be seen then."""
    a, b = (_centred(np.asarray(values, dtype=np.float64)) for values in (x, y))
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.clip(a @ b / length, -1.0, 1.0)) if length > 0 else 0.0


def _centred(values: Floats) -> Floats:
    """Differences from the mean, by their largest; all 0 where the values are equal but for rounding."""
    if not values.size:
        return values
    differences = values - values.mean()
    largest = float(np.abs(differences).max())
    return np.zeros_like(values) if largest <= 1e-14 * np.abs(values).max() else differences / largest


def ranks(values: ArrayLike) -> Floats:
    """Places in the order of size, counted from 1; equal values share the mean of their places."""
    _, inverse, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], dtype=np.float64)


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """The correlation of the ranks."""
    return pearson(ranks(x), ranks(y))


class NumberMetrics:
    """True numbers beside predicted ones."""

    def __init__(self) -> None:
        self._gold, self._predicted = array("d"), array("d")

    def add(self, gold: float, predicted: float) -> None:
        """One more example."""
        self._gold.append(gold)
        self._predicted.append(predicted)

    def scores(self) -> dict[str, float]:
        """Every score by name."""
        gold, predicted = (np.frombuffer(values) if values else np.empty(0) for values in (self._gold, self._predicted))
        error = float(np.mean((gold - predicted) ** 2)) if gold.size else 0.0
        return {"pearson": pearson(gold, predicted), "spearman": spearman(gold, predicted), "mse": error}
