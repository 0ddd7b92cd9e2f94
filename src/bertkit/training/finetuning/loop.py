"""A task on the one loop of stepping.py: its loss as a share of the step's, and what is done where memory runs out."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.model.bert import BertModel
from bertkit.tasks.task import Task, TaskBatch
from bertkit.training.finetuning.feed import TaskCounts, TaskFeed
from bertkit.training.finetuning.graphs import Graphs
from bertkit.training.finetuning.narrow import NarrowStep
from bertkit.training.loss_loop import LossLoop


class TaskObjective(nn.Module):
    """A model with a task's loss."""

    def __init__(self, model: BertModel, task: Task[Any, Any]) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: TaskBatch, denominators_1: Tensor) -> tuple[Tensor, Tensor]:
        """The loss's share of the step's mean, and its sum for the record."""
        summed = self.task.loss_sum(self.task.logits(self.model, batch), batch)
        return summed / denominators_1[0], summed.detach().float()[None]


class TaskLoop(LossLoop[TaskBatch, TaskCounts]):
    """The loop over a task's batches; memory that runs out halves the micro-batches and keeps the step."""

    on_relief: Callable[[int], None] = staticmethod(lambda micro_tokens: None)
    narrow: NarrowStep | None = None  # in bf16; set before the first step, as are the graphs of it
    graphs: Graphs | None = None
    _is_first = True  # micro-batch of its step

    def differentiate(self, batch: TaskBatch, whole: Tensor) -> Tensor:
        """In bf16 on narrow copies, by a CUDA graph where there are some and the batch is small."""
        if self.narrow is None:
            return super().differentiate(batch, whole)
        is_first, self._is_first = self._is_first, False
        sums = self.graphs.differentiate(batch, whole, is_first=is_first) if self.graphs else None
        if sums is None:
            sums = self.narrow.differentiate(batch.to(self.world.device), whole, is_first=is_first)
        return sums

    def zero_gradients(self) -> None:
        """Narrow steps overwrite them in their fixed places, but for those of rows in use."""
        self._is_first = True
        if self.narrow is None:
            super().zero_gradients()
        elif self.used_rows:
            self.used_rows.clear()

    def relieve(self) -> bool:
        """Halve the micro-batches."""
        (feed,) = self.feeds
        assert isinstance(feed, TaskFeed)
        if not feed.halve(self.progress.step):
            return False
        if self.graphs:  # of the larger batches, which would hold their memory for nothing
            self.graphs.forget()
        self.on_relief(feed.micro_tokens)
        return True


def half_copy(model: BertModel, dtype: torch.dtype) -> BertModel:
    """A narrow copy to predict with; the float32 weights stay as they are."""
    with torch.device("meta"):  # drawing weights that are overwritten takes a second
        made = BertModel(model.config)
    made = made.to(dtype).to_empty(device=model.device)
    made.load_state_dict(model.state_dict())
    return made.eval()
