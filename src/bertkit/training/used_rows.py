"""The word embeddings of a model that is fine-tuned on a CPU: of thirty thousand rows a batch has a few hundred.

By itself every micro-batch makes a gradient of all rows, in memory that the system must hand out and fill with zeros, and
in bf16 copies of it: a quarter to a third of a step of 32 short texts. Here a batch is given the rows that it has, as a
table of their own, and their gradients are added to one that stays where it is, zero but for the rows of the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from bertkit.model.packed import PackedBatch


class WithInputs(Protocol):
    """A batch of a task or of pairs; a dataclass."""

    @property
    def inputs(self) -> PackedBatch:
        """Its tokens."""


BatchT = TypeVar("BatchT", bound=WithInputs)


@dataclass
class UsedRows:
    """A table of which the rows in use are copied; its gradient of a whole step."""

    name: str  # of the table in the objective
    table: nn.Parameter
    gradient: Tensor
    _of_step: list[Tensor] = field(default_factory=list)  # the rows of each micro-batch, by number

    @classmethod
    def of(cls, objective: Any) -> UsedRows | None:
        """Those of an objective with a model, which does not decode by them; None if not on a CPU, or not trained."""
        table = objective.model.encoder.embeddings.token.weight
        if table.device.type != "cpu" or not table.requires_grad:
            return None
        (name,) = (name for name, p in objective.named_parameters() if p is table)
        table.grad = torch.zeros_like(table)
        return cls(name, table, table.grad)

    def take(self, batch: BatchT, dtype: torch.dtype) -> tuple[BatchT, Tensor]:
        """The batch with places in a table of its own in place of token ids, and that table."""
        ids, places = batch.inputs.token_ids.unique(return_inverse=True)
        self._of_step.append(ids)
        rows = self.table.detach()[ids].to(dtype).requires_grad_()
        inputs = replace(batch.inputs, token_ids=places)
        return replace(batch, inputs=inputs), rows  # type: ignore[type-var]

    def add(self, grad: Tensor) -> None:
        """The gradient of the table taken last."""
        self.gradient.index_add_(0, self._of_step[-1], grad.to(self.gradient.dtype))

    def clear(self) -> None:
        """Nothing is left of a step."""
        for ids in self._of_step:
            self.gradient.index_fill_(0, ids, 0.0)
        self._of_step.clear()
        self.table.grad = self.gradient
