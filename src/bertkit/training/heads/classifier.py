"""Logistic regression on a table of features: full-batch L-BFGS in float64, with L2, so that it is deterministic.

In: features of labelled texts. Out: a trained head, with its scores on dev. The table is read in slices, so that one
larger than memory will do.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bertkit.errors import BertkitError
from bertkit.model.feature_heads import Head, HeadConfig, LogisticHead
from bertkit.tasks.feature_heads import TrainedHead, class_probabilities
from bertkit.tasks.features import FeatureTable
from bertkit.tasks.metrics.classes import ClassMetrics

SLICE_FLOATS = 2**22


@dataclass(frozen=True)
class LogisticTraining:
    """L2 as in (1/2) l2 |W|^2 + the summed loss: scikit-learn's C is 1 / l2 (for three classes and more)."""

    l2: float = 1.0
    max_iterations: int = 300
    tolerance: float = 1e-6  # of the largest entry of the gradient of the mean loss

    def __post_init__(self) -> None:
        if not 0 <= self.l2 < math.inf or self.max_iterations < 1 or self.tolerance <= 0:
            raise BertkitError("logistic regression needs l2 of at least 0, max_iterations of 1 and tolerance above 0")


def train_classifier(
    train: FeatureTable,
    dev: FeatureTable | None = None,
    config: LogisticTraining | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> TrainedHead:
    """Fit the labels of texts; the best weights are unique, so there is no seed."""
    config = config or LogisticTraining()
    labels = train.known_labels("the training features")
    names = tuple(sorted(set(labels)))
    if len(names) < 2:
        raise BertkitError(
            f"all texts have the label {names[0]!r}; logistic regression needs two" if names else NO_ROWS
        )
    recipe = train.recipe
    if dev is not None:
        recipe.check_same(dev.recipe, "the dev features")
    shape = HeadConfig("logistic", names, recipe.width, recipe.num_stacked, recipe.weighted)
    head = LogisticHead(shape).double()
    standardise(head, train)
    index = {name: number for number, name in enumerate(names)}
    history: list[dict[str, float]] = []

    def note(step: int, loss: float) -> None:
        history.append({"step": step, "loss": loss})
        if on_step:
            on_step(step, loss)

    fit(head, train, torch.tensor([index[label] for label in labels]), config, note)
    head.float().eval()
    return TrainedHead(head, recipe, {} if dev is None else score_classifier(head, dev, train), history)


NO_ROWS = "there are no texts to train on"


def fit(
    head: LogisticHead,
    table: FeatureTable,
    targets: Tensor,
    config: LogisticTraining,
    on_step: Callable[[int, float], None] | None = None,
) -> None:
    """Minimise the mean loss with its share of L2."""
    optimizer = torch.optim.LBFGS(
        list(head.parameters()),
        max_iter=config.max_iterations,
        tolerance_grad=config.tolerance,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )
    rows = len(table)
    calls = 0

    def measure() -> Tensor:
        nonlocal calls
        optimizer.zero_grad()
        penalty = config.l2 / (2 * rows) * head.classifier.weight.square().sum()
        penalty.backward()
        total = penalty.detach()
        for start, features in slices(table):
            loss = F.cross_entropy(head(features), targets[start : start + len(features)], reduction="sum") / rows
            loss.backward()
            total = total + loss.detach()
        calls += 1
        if on_step:
            on_step(calls, float(total))
        return total

    optimizer.step(measure)


def standardise(head: Head, table: FeatureTable) -> None:
    """Give the head the mean and spread of the training features; a constant feature is left as it is."""
    total = torch.zeros(table.recipe.width, dtype=torch.float64)
    squares = total.clone()
    for _, features in slices(table):
        total += features.sum(0)
    mean = total / len(table)
    for _, features in slices(table):
        squares += (features - mean).square().sum(0)
    spread = (squares / len(table)).sqrt()
    head.intake.mean.copy_(mean)
    head.intake.scale.copy_(torch.where(spread > 1e-8, 1 / spread.clamp_min(1e-8), 1.0))


def slices(table: FeatureTable) -> Iterator[tuple[int, Tensor]]:
    """The features in float64, some rows at a time, each with its first row."""
    step = max(1, SLICE_FLOATS // table.recipe.width)
    for start in range(0, len(table), step):
        yield start, torch.from_numpy(np.asarray(table.vectors[start : start + step], dtype=np.float64))


def score_classifier(head: LogisticHead, dev: FeatureTable, train: FeatureTable) -> dict[str, float]:
    """Accuracy, F1 and Matthews' correlation on other features, made alike and with labels that the head knows."""
    train.recipe.check_same(dev.recipe, "the dev features")
    labels, truth = head.config.labels, dev.known_labels("the dev features")
    if strange := sorted(set(truth) - set(labels)):
        raise BertkitError(f"the dev label {strange[0]!r} does not occur in training, which has {', '.join(labels)}")
    metrics = ClassMetrics(labels)
    for start, features in slices(dev):
        best = class_probabilities(head, features.numpy()).argmax(-1)
        for row, guess in enumerate(best, start):
            metrics.add(truth[row], labels[guess])
    return metrics.scores()
