"""GELU in its erf form with the bias of the product before it, one pass each way.

In: the product, [T, I], and its bias. Out: the activations; backward, the product's gradient, written over the
activations' own, and the bias's. erf comes from one exponential and a polynomial (Abramowitz and Stegun 7.1.26, error
below 2e-7, far below what bf16 can hold); the same exponential is the density that the gradient needs.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertkit.model.kernels.layer_norm import num_cores

COLUMNS = 256
ROWS = 16


@triton.jit
def normal_cdf(x):
    """The standard normal distribution's probability below x, and exp(-x * x / 2)."""
    size = tl.abs(x) * 0.7071067811865476
    density = tl.exp2(x * x * -0.7213475204444817)
    t = 1.0 / (1.0 + 0.3275911 * size)
    tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * tail * density
    return tl.where(x > 0, 1.0 - tail, tail), density


@triton.jit
def _forward(product, bias, out, num_rows, I: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):  # noqa: E741
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = (row < num_rows)[:, None] & (column < I)[None, :]
    places = row.to(tl.int64)[:, None] * I + column[None, :]
    x = tl.load(product + places, mask=valid, other=0.0).to(tl.float32)
    x += tl.load(bias + column, mask=column < I, other=0.0)[None, :]
    below, _ = normal_cdf(x)
    tl.store(out + places, (x * below).to(out.dtype.element_ty), mask=valid)


@triton.jit
def _backward(
    grad, product, bias, partial, num_rows, I: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr  # noqa: E741
):  # fmt: skip
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    bias_row = tl.load(bias + column, mask=column < I, other=0.0)[None, :]
    d_bias = tl.zeros([COLUMNS], tl.float32)
    for first in range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        valid = (row < num_rows)[:, None] & (column < I)[None, :]
        places = row.to(tl.int64)[:, None] * I + column[None, :]
        x = tl.load(product + places, mask=valid, other=0.0).to(tl.float32) + bias_row
        d_x = tl.load(grad + places, mask=valid, other=0.0).to(tl.float32)
        below, density = normal_cdf(x)
        d_x *= below + x * density * 0.3989422804014327
        d_bias += tl.sum(d_x, 0)
        tl.store(grad + places, d_x.to(grad.dtype.element_ty), mask=valid)
    tl.store(partial + tl.program_id(0) * I + column, d_bias, mask=column < I)


def gelu_forward(product_TI: Tensor, bias: Tensor) -> Tensor:
    """gelu(product + bias): [T, I]."""
    num_rows, width = product_TI.shape
    out = torch.empty_like(product_TI)
    grid = (triton.cdiv(num_rows, ROWS), triton.cdiv(width, COLUMNS))
    _forward[grid](product_TI, bias, out, num_rows, width, COLUMNS, ROWS, num_warps=4)
    return out


def gelu_backward_(grad_TI: Tensor, product_TI: Tensor, bias: Tensor) -> Tensor:
    """Turn the gradient of the activations into the product's, in place; the bias's comes back, [I] in float32."""
    num_rows, width = product_TI.shape
    columns = triton.cdiv(width, COLUMNS)
    strips = min(triton.cdiv(num_rows, ROWS), max(1, 8 * num_cores(grad_TI.device) // columns))
    partial = torch.empty(strips, width, dtype=torch.float32, device=grad_TI.device)
    _backward[(strips, columns)](grad_TI, product_TI, bias, partial, num_rows, width, COLUMNS, ROWS, num_warps=4)
    return partial.sum(0)
