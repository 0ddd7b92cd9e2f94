"""An objective in bf16 whose weights are cast, and whose gradients reach float32, all at once and not one by one.

A step of 32 short texts is bound by launches: HalfPrecision casts every weight and adds every gradient in a kernel of
its own, three for each of 200 tensors. Here copies of the weights are the leaves. They are refreshed with a step's first
micro-batch, whose gradients overwrite those of the step before, so that nothing is zeroed. The bits are the same.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bertkit.tasks.task import TaskBatch
from bertkit.training.used_rows import UsedRows


class NarrowStep:
    """Gradients of an objective on narrow copies of its weights; the weights and gradients themselves are float32."""

    def __init__(self, objective: nn.Module, dtype: torch.dtype, used_rows: UsedRows | None = None) -> None:
        self.objective, self.dtype, self.used_rows = objective, dtype, used_rows
        apart = used_rows.name if used_rows else None  # only its rows in use are copied
        self.masters = {name: p for name, p in objective.named_parameters() if name != apart}
        self.copies = {
            name: torch.empty_like(p, dtype=dtype, requires_grad=p.requires_grad) for name, p in self.masters.items()
        }
        for p in self.parameters:
            p.grad = torch.zeros_like(p)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Those that are trained and have copies."""
        return [p for p in self.masters.values() if p.requires_grad]

    def differentiate(self, batch: TaskBatch, whole: Tensor, *, is_first: bool) -> Tensor:
        """The first micro-batch of a step sets the gradients, later ones add to them; its sums come back."""
        if is_first:
            self._refresh()
        copies = dict(self.copies)
        if self.used_rows:
            batch, copies[self.used_rows.name] = self.used_rows.take(batch, self.dtype)
        loss, sums = functional_call(self.objective, copies, (batch, whole))
        leaves = {name: copy for name, copy in copies.items() if copy.requires_grad}
        found = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()), allow_unused=True), strict=True))
        if self.used_rows:
            self.used_rows.add(found.pop(self.used_rows.name))
        pairs = [(self.masters[name].grad, grad) for name, grad in found.items() if grad is not None]
        totals, grads = [total for total, _ in pairs if total is not None], [grad for _, grad in pairs]
        if is_first:
            torch._foreach_copy_(totals, grads)
        else:
            torch._foreach_add_(totals, grads)
        done: Tensor = sums
        return done

    @torch.no_grad()
    def _refresh(self) -> None:
        torch._foreach_copy_(list(self.copies.values()), list(self.masters.values()))
