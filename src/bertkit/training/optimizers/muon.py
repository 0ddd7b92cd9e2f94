"""Muon (Jordan et al. 2024): momentum whose matrix is replaced by the nearest orthogonal one, for the encoder's matrices.

Query, key and value are orthogonalised each by itself out of the fused matrix. Matrices of one shape go through the
Newton-Schulz iteration together. Momentum is Nesterov's and needs no warm-up: its size drops out. Decay is decoupled.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from bertkit.model.linear import multiply_each
from bertkit.training.optimizers.group_optimizer import GroupOptimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NUM_ITERATIONS = 5
ADAM_SCALE = 0.2  # the usual root mean square of AdamW's update
MatrixScale = Literal["adamw", "spectral"]
SCALES: tuple[MatrixScale, ...] = ("adamw", "spectral")


def update_scale(scale: MatrixScale, rows: int, columns: int) -> float:
    """What an orthogonal matrix is multiplied by, besides the rate.

    adamw (Liu et al. 2025): every element's root mean square is 0.2, so one rate serves Muon and AdamW.
    spectral (Jordan et al. 2024): the largest singular value is 1, or sqrt(rows / columns) of a tall matrix.
    A spectral rate r is 5 r / sqrt(hidden) by adamw's, for all but the down projection, which adamw's moves twice as far.
    """
    if scale == "spectral":
        return float(max(1.0, rows / columns) ** 0.5)
    return float(ADAM_SCALE * max(rows, columns) ** 0.5)


class Muon(GroupOptimizer):
    """Groups may set `num_parts` (3 for the fused qkv)."""

    def __init__(
        self, params: Any, lr: float, momentum: float, weight_decay: float, scale: MatrixScale = "adamw"
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "scale": scale, "num_parts": 1}
        super().__init__(params, defaults)

    def update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """One step of this group."""
        momentum = group["momentum"]
        grads, buffers = [p.grad for p in params if p.grad is not None], [self._buffer(p) for p in params]
        torch._foreach_lerp_(buffers, grads, 1 - momentum)
        directions = torch._foreach_lerp(grads, buffers, momentum)  # Nesterov
        parts = [part for direction in directions for part in direction.chunk(group["num_parts"])]
        weights = [part for p in params for part in p.chunk(group["num_parts"])]
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        for shape in sorted({tuple(part.shape) for part in parts}):
            chosen = [index for index, part in enumerate(parts) if tuple(part.shape) == shape]
            updates = orthogonalise(torch.stack([parts[index] for index in chosen]))
            scale = update_scale(group["scale"], *shape)
            torch._foreach_add_([weights[index] for index in chosen], updates.unbind(0), alpha=-group["lr"] * scale)

    def _buffer(self, p: Tensor) -> Tensor:
        state = self.state[p]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(p)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


def orthogonalise(matrices_BNM: Tensor) -> Tensor:
    """Singular values to about 1 by five quintic steps, in bf16 on CUDA and float32 elsewhere."""
    a, b, c = COEFFICIENTS
    tall = matrices_BNM.shape[-2] > matrices_BNM.shape[-1]
    x = matrices_BNM.mT if tall else matrices_BNM
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    x = x.bfloat16() if x.is_cuda else x.float()
    for _ in range(NUM_ITERATIONS):
        gram = multiply_each(x, x)
        x = a * x + multiply_each(b * gram + c * multiply_each(gram, gram), x.mT)  # gram is its own transpose
    found: Tensor = (x.mT if tall else x).to(matrices_BNM.dtype)
    return found
