"""LAMB (You et al. 2020): Adam whose update of each layer is as large as a share of the layer's weights.

Query, key and value count as three layers, as they are in the original, though they lie in one matrix here.
"""

from typing import Any

import torch
from torch import Tensor

from bertkit.training.optimizers.group_optimizer import GroupOptimizer


class Lamb(GroupOptimizer):
    """Groups may set `adapt` (False for biases and LayerNorms) and `num_parts` (3 for the fused qkv)."""

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapt": True, "num_parts": 1}
        super().__init__(params, defaults)

    def update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """One step of this group."""
        states = [self._state(p) for p in params]
        grads = [p.grad for p in params if p.grad is not None]
        means, squares = [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states]
        beta1, beta2 = group["betas"]
        torch._foreach_add_([state["step"] for state in states], 1.0)
        step = int(states[0]["step"])
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        scales = torch._foreach_div(squares, 1 - beta2**step)
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, group["eps"])
        updates = list(torch._foreach_div(means, 1 - beta1**step))
        torch._foreach_div_(updates, scales)
        if group["weight_decay"]:
            torch._foreach_add_(updates, params, alpha=group["weight_decay"])
        if group["adapt"]:
            weights, updates = _parts(params, group["num_parts"]), _parts(updates, group["num_parts"])
            torch._foreach_mul_(updates, _trust(weights, updates))
            torch._foreach_add_(weights, updates, alpha=-group["lr"])
        else:
            torch._foreach_add_(params, updates, alpha=-group["lr"])

    def _state(self, p: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        return state


def _parts(tensors: list[Tensor], num_parts: int) -> list[Tensor]:
    """Views of the parts that count as layers of their own."""
    return [part for tensor in tensors for part in tensor.chunk(num_parts)]


def _trust(weights: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """|weights| / |update| of each layer, and 1 where either is zero."""
    pairs = zip(torch._foreach_norm(weights), torch._foreach_norm(updates), strict=True)
    return [torch.where((weight > 0) & (update > 0), weight / update, 1.0) for weight, update in pairs]
