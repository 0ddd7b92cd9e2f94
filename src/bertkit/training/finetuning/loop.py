"""A task on the one loop of stepping.py: its loss as a share of the step's, and the record of each step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.model.bert import BertModel
from bertkit.tasks.task import Task, TaskBatch
from bertkit.training.finetuning.feed import TaskCounts, TaskFeed, add_counts
from bertkit.training.finetuning.graphs import Graphs
from bertkit.training.stepping import Loop, Step


@dataclass(frozen=True)
class TaskRecord:
    """What one step of fine-tuning saw."""

    step: int
    loss: float  # the mean over the step's targets
    grad_norm: float
    learning_rate: float
    num_tokens: int
    seconds: float


class TaskObjective(nn.Module):
    """A model with a task's loss."""

    def __init__(self, model: BertModel, task: Task[Any, Any]) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: TaskBatch, denominators_1: Tensor) -> tuple[Tensor, Tensor]:
        """The loss's share of the step's mean, and its sum for the record."""
        summed = self.task.loss_sum(self.task.logits(self.model, batch), batch)
        return summed / denominators_1[0], summed.detach().float()[None]


class TaskLoop(Loop[TaskBatch, TaskCounts, TaskRecord]):
    """The loop over a task's batches; memory that runs out halves the micro-batches and keeps the step."""

    on_relief: Callable[[int], None] = staticmethod(lambda micro_tokens: None)
    graphs: Graphs | None = None  # set before the first step

    def differentiate(self, batch: TaskBatch, whole: Tensor) -> Tensor:
        """By a CUDA graph where there are some and the batch is small."""
        sums = self.graphs.differentiate(batch, whole) if self.graphs else None
        return super().differentiate(batch, whole) if sums is None else sums

    def zero_gradients(self) -> None:
        """Graphs write to fixed places."""
        if self.graphs:
            self.graphs.zero_gradients()
        else:
            super().zero_gradients()

    @staticmethod
    def add_counts(counts: Iterable[TaskCounts]) -> TaskCounts:
        """Targets and tokens."""
        return add_counts(counts)

    def make_record(self, step: Step[TaskCounts], sums: list[float]) -> TaskRecord:
        """The sum as a mean."""
        return TaskRecord(
            step=step.step,
            loss=sums[0] / step.counts.denominators[0],
            grad_norm=step.grad_norm,
            learning_rate=step.learning_rate,
            num_tokens=step.counts.num_tokens,
            seconds=step.seconds,
        )

    def relieve(self) -> bool:
        """Halve the micro-batches."""
        (feed,) = self.feeds
        assert isinstance(feed, TaskFeed)
        if not feed.halve(self.progress.step):
            return False
        self.on_relief(feed.micro_tokens)
        return True


def half_copy(model: BertModel, dtype: torch.dtype) -> BertModel:
    """A narrow copy to predict with; the float32 weights stay as they are."""
    made = BertModel(model.config).to(model.device, dtype)
    made.load_state_dict(model.state_dict())
    return made.eval()
