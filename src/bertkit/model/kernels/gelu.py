"""GELU in its erf form with the bias of the product before it, one pass each way.

In: the product, [T, I], and its bias. Out: the activations, also in eight bits where asked for; backward, the
product's gradient, written over the activations' own, and the bias's. erf comes from one exponential and a polynomial
(Abramowitz and Stegun 7.1.26, error below 2e-7, far below what bf16 can hold); the same exponential is the density
that the gradient needs.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertkit.model.kernels.layer_norm import activation_rows8
from bertkit.model.kernels.rows8 import Rows8, empty_rows8, num_cores

ROWS, ROWS8, COLUMNS = 8, 4, 1024  # of a tile; fewer rows where eight bits need registers too


@triton.jit
def normal_cdf(x):
    """The standard normal distribution's probability below x, and exp(-x * x / 2)."""
    density = tl.exp2(x * x * -0.7213475204444817)
    t = 1.0 / (1.0 + 0.23164188 * tl.abs(x))
    tail = t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
    tail *= density
    return tl.where(x > 0, 1.0 - tail, tail), density


@triton.jit(do_not_specialize=["zero"])
def gelu_forward_kernel(
    product, bias, out, out8, zero, num_rows,
    I: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, EIGHT: tl.constexpr,  # noqa: E741
):  # fmt: skip
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = (row < num_rows)[:, None] & (column < I)[None, :]
    places = row.to(tl.int64)[:, None] * I + column[None, :]
    x = tl.load(product + places, mask=valid, other=0.0).to(tl.float32)
    x += tl.load(bias + column, mask=column < I, other=0.0)[None, :]
    below, _ = normal_cdf(x)
    x *= below
    tl.store(out + places, x.to(out.dtype.element_ty), mask=valid)
    if EIGHT:
        tl.store(out8 + zero * 8 + places, (x * 8.0).to(out8.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["zero"])
def gelu_backward_kernel(
    grad, product, bias, partial, grad8, scales, gain, scales8, zero, num_rows,
    I: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, EIGHT: tl.constexpr,  # noqa: E741
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
        if EIGHT:
            scale = tl.load(scales + row, mask=row < num_rows, other=1.0) * tl.load(gain)
            tl.store(grad8 + zero * 8 + places, (d_x / scale[:, None]).to(grad8.dtype.element_ty), mask=valid)
            if tl.program_id(1) == 0:
                tl.store(scales8 + row, scale, mask=row < num_rows)
    tl.store(partial + tl.program_id(0) * I + column, d_bias, mask=column < I)


def gelu_forward(product_TI: Tensor, bias: Tensor, *, eight: bool = False) -> tuple[Tensor, Rows8 | None]:
    """gelu(product + bias), [T, I], also in eight bits where asked for."""
    out = torch.empty_like(product_TI)
    rows8 = activation_rows8(product_TI) if eight else None
    num_rows, width = product_TI.shape
    rows = ROWS8 if rows8 else ROWS
    grid = (triton.cdiv(num_rows, rows), triton.cdiv(width, COLUMNS))
    gelu_forward_kernel[grid](
        product_TI, bias, out, rows8 and rows8.values, 0, num_rows, width, COLUMNS, rows, eight, num_warps=4
    )
    return out, rows8


def gelu_backward_(
    grad_TI: Tensor, product_TI: Tensor, bias: Tensor, scales: Tensor | None = None, gain: Tensor | None = None
) -> tuple[Tensor, Rows8 | None]:
    """Turn the gradient of the activations into the product's, in place; the bias's comes back, [I] in float32.

    With the scales of the rows it came from, and how much the product between may enlarge them, also in eight bits.
    """
    num_rows, width = product_TI.shape
    rows, parts = ROWS if scales is None else ROWS8, triton.cdiv(width, COLUMNS)
    strips = min(triton.cdiv(num_rows, rows), max(1, 8 * num_cores(grad_TI.device) // parts))
    partial = torch.empty(strips, width, dtype=torch.float32, device=grad_TI.device)
    rows8 = empty_rows8(grad_TI) if scales is not None else None
    places8 = (rows8.values, scales, gain, rows8.scales) if rows8 else (None, None, None, None)
    tensors = (grad_TI, product_TI, bias, partial, *places8)
    sizes = (0, num_rows, width, COLUMNS, rows, rows8 is not None)
    gelu_backward_kernel[(strips, parts)](*tensors, *sizes, num_warps=4)
    return partial.sum(0), rows8
