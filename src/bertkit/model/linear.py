"""The products of the model's linear layers, [rows, inputs] -> [rows, outputs], by PyTorch; on CPUs also by its oneDNN.

PyTorch multiplies float32 by MKL, which has AVX-512 for Intel's CPUs alone: on AMD's, oneDNN takes half the time. It keeps
something prepared for every shape that it meets, in bfloat16 too, up to a thousand of them, and memory grows to gigabytes.
So for oneDNN rows are filled up with zeros, and few numbers of rows come up.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.cores import has_slow_mkl

FEW, MANY = 16, 64  # numbers of rows are multiples of these, below and from 64 on


def product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows weight^T + bias."""
    num = rows.shape[0]
    if rows.device.type != "cpu" or not num or not _is_by_onednn(rows.dtype):
        return F.linear(rows, weight, bias)
    spare = -num % (FEW if num < MANY else MANY)
    filled = F.pad(rows, (0, 0, 0, spare)) if spare else rows
    if rows.dtype == torch.bfloat16:
        return F.linear(filled, weight, bias)[:num]
    made: Tensor = OneDnnProduct.apply(filled, weight, bias)  # type: ignore[no-untyped-call]
    return made[:num]


def _is_by_onednn(dtype: torch.dtype) -> bool:
    return dtype == torch.bfloat16 or (dtype == torch.float32 and has_slow_mkl())


class OneDnnProduct(torch.autograd.Function):
    """F.linear in float32 by oneDNN, and its gradients."""

    @staticmethod
    def forward(context: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """rows weight^T + bias."""
        context.save_for_backward(rows, weight)
        return _multiply(rows, weight, bias)

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Of rows, weight and bias, as far as they are asked for."""
        (grad,), (rows, weight) = grads, context.saved_tensors
        of_rows, of_weight, of_bias = context.needs_input_grad
        return (
            _multiply(grad, weight.t()) if of_rows else None,
            _multiply(grad.t(), rows.t()) if of_weight else None,
            grad.sum(0) if of_bias else None,
        )


def _multiply(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left right^T + bias: the operator that PyTorch's own compiler takes, which cannot be differentiated."""
    made: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
    return made


def multiply_each(left_BNK: Tensor, right_BMK: Tensor) -> Tensor:
    """left right^T of every pair of matrices; not to be differentiated."""
    if left_BNK.device.type != "cpu" or left_BNK.dtype != torch.float32 or not has_slow_mkl():
        return left_BNK @ right_BMK.mT
    return torch.stack([_multiply(left, right) for left, right in zip(left_BNK, right_BMK, strict=True)])


class Linear(nn.Linear):
    """nn.Linear on rows, by `product`."""

    def forward(self, rows: Tensor) -> Tensor:
        """[rows, inputs] -> [rows, outputs]."""
        return product(rows, self.weight, self.bias)
