"""What optimizers of our own share: a step is one update of each parameter group that has gradients."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class GroupOptimizer(Optimizer, ABC):
    """An optimizer that updates group by group; no value is read back to the host."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of everything that has a gradient."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self.update(group, params)

    @abstractmethod
    def update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """Update these parameters of one group in place."""
