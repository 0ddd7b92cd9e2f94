"""The loop of all that has one loss: tasks, taggers on features, sentence vectors; pre-training, with two, has loop.py.

In: an objective whose sums are its loss alone. Out: a record of every step, with the mean loss over its targets.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from bertkit.training.feeds import BatchT
from bertkit.training.stepping import CountsT, Loop, Step
from bertkit.training.used_rows import UsedRows


@dataclass(frozen=True)
class LossRecord:
    """What one step saw."""

    step: int
    loss: float  # the mean over the step's targets
    grad_norm: float
    learning_rate: float
    num_tokens: int
    seconds: float


class LossLoop(Loop[BatchT, CountsT, LossRecord]):
    """The loop over any batches whose counts are dataclasses of whole numbers."""

    used_rows: UsedRows | None = None  # of a model that is trained on a CPU; set before the first step

    def differentiate(self, batch: BatchT, whole: Tensor) -> Tensor:
        """On a CPU without a gradient of all word embeddings."""
        if self.used_rows is None:
            return super().differentiate(batch, whole)
        own, rows = self.used_rows.take(batch, torch.float32)  # type: ignore[type-var]
        loss, sums = functional_call(self.plain_objective, {self.used_rows.name: rows}, (own, whole))
        loss.backward()
        assert rows.grad is not None
        self.used_rows.add(rows.grad)
        found: Tensor = sums
        return found

    def zero_gradients(self) -> None:
        """Those of word embeddings stay in their place."""
        super().zero_gradients()
        if self.used_rows:
            self.used_rows.clear()

    @staticmethod
    def add_counts(counts: Iterable[Any]) -> Any:
        """Field by field."""
        rows = list(counts)
        return type(rows[0])(*(sum(column) for column in zip(*map(astuple, rows), strict=True)))

    def make_record(self, step: Step[CountsT], sums: list[float]) -> LossRecord:
        """The sum as a mean."""
        return LossRecord(
            step=step.step,
            loss=sums[0] / step.counts.denominators[0],
            grad_norm=step.grad_norm,
            learning_rate=step.learning_rate,
            num_tokens=step.counts.num_tokens,
            seconds=step.seconds,
        )
