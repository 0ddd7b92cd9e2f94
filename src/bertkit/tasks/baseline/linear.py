"""Linear models over sparse features: multinomial logistic regression and ridge regression, in numpy.

Both minimise (sum of losses) + |W|^2 / (2 C), the bias left free, by Newton's method with conjugate gradients inside:
the second derivative is only ever multiplied with a vector. Dimensions: N examples, F features, K outputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Product = Callable[[Floats], Floats]


@dataclass(frozen=True)
class SparseRows:
    """N rows of features, stored one after another."""

    values: Floats  # [Z]
    features: NDArray[np.int64]  # [Z] which feature each value is of
    starts: NDArray[np.int64]  # [N + 1] where each row begins
    num_features: int

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.starts) - 1

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """[Z] the row that each value stands in."""
        return np.repeat(np.arange(self.num_rows), np.diff(self.starts))

    def times(self, weights_FK: Floats) -> Floats:
        """X W: [N, K]."""
        columns = [
            np.bincount(self.rows, self.values * column[self.features], self.num_rows) for column in weights_FK.T
        ]
        return np.stack(columns, axis=1)

    def transposed_times(self, matrix_NK: Floats) -> Floats:
        """X' M: [F, K]."""
        columns = [
            np.bincount(self.features, self.values * column[self.rows], self.num_features) for column in matrix_NK.T
        ]
        return np.stack(columns, axis=1)

    def with_bias(self) -> "SparseRows":
        """One more feature, which is 1 everywhere."""
        values = np.insert(self.values, self.starts[1:], 1.0)
        features = np.insert(self.features, self.starts[1:], self.num_features)
        return SparseRows(values, features, self.starts + np.arange(self.num_rows + 1), self.num_features + 1)


def softmax(logits_NK: Floats) -> Floats:
    """Rows that sum to 1."""
    grown = np.exp(logits_NK - logits_NK.max(axis=1, keepdims=True))
    return np.asarray(grown / grown.sum(axis=1, keepdims=True))


def logits(rows: SparseRows, weights: Floats) -> Floats:
    """[N, K]; of two classes the first has 0, and one column of weights says the other."""
    outputs = rows.times(weights)
    return np.pad(outputs, ((0, 0), (1, 0))) if outputs.shape[1] == 1 else outputs


def fit_logistic(rows: SparseRows, targets_N: NDArray[np.int64], num_classes: int, strength: float = 1.0) -> Floats:
    """Weights [F + 1, K] of multinomial logistic regression, [F + 1, 1] for two classes; `strength` is C."""
    inputs, penalty = rows.with_bias(), _penalty(rows.num_features, strength)
    truth_NK = np.eye(num_classes)[targets_N]
    weights = np.zeros((inputs.num_features, num_classes if num_classes > 2 else 1))
    learned = slice(-weights.shape[1], None)
    for _ in range(30):
        chances_NK = softmax(logits(inputs, weights))
        gradient = inputs.transposed_times((chances_NK - truth_NK)[:, learned]) + penalty * weights

        def curvature(direction: Floats, chances_NK: Floats = chances_NK) -> Floats:
            moved = chances_NK * logits(inputs, direction)
            moved -= chances_NK * moved.sum(axis=1, keepdims=True)
            return inputs.transposed_times(moved[:, learned]) + penalty * direction

        step = conjugate_gradients(curvature, -gradient, tolerance=0.1, most=40)
        weights += step
        if np.abs(step).max() < 1e-3:
            break
    return weights


def fit_ridge(rows: SparseRows, targets_N: Floats, strength: float = 1.0) -> Floats:
    """Weights [F + 1, 1] of least squares with a penalty on large weights."""
    inputs, penalty = rows.with_bias(), _penalty(rows.num_features, strength)
    return conjugate_gradients(
        lambda weights: inputs.transposed_times(inputs.times(weights)) + penalty * weights,
        inputs.transposed_times(targets_N[:, None]),
        tolerance=1e-6,
        most=200,
    )


def _penalty(num_features: int, strength: float) -> Floats:
    return np.append(np.full(num_features, 1.0 / strength), 1e-6)[:, None]  # the bias is free


def conjugate_gradients(product: Product, target: Floats, tolerance: float, most: int) -> Floats:
    """Solve A x = b for a symmetric positive A that is known by its products."""
    solution, rest = np.zeros_like(target), target.copy()
    direction, size = rest.copy(), float((rest * rest).sum())
    goal = tolerance**2 * size
    for _ in range(most):
        if size <= goal:
            break
        image = product(direction)
        length = size / float((direction * image).sum())
        solution += length * direction
        rest -= length * image
        size, before = float((rest * rest).sum()), size
        direction = rest + (size / before) * direction
    return solution
