"""LayerNorm of product + bias + residual, one pass each way.

In: the product, [T, D], its bias, and the residual or None; with ids, those are tables, and the rows that the ids name are
normalised: that is how embeddings begin. Out: the normalised rows with their means and inverse
deviations, and the rows in eight bits where asked for; backward, the gradient of the sum and those of weight, shift
and bias, which are added up per program and then over the programs, so that the order is always the same.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertkit.model.kernels.e4m3 import ACTIVATION
from bertkit.model.kernels.rows8 import Rows8, empty_rows8, num_cores, store_row8

ROWS, ROWS_BACK = 2, 2  # rows of a tile
PROGRAMS_PER_CORE = 4
Ids = tuple[Tensor, Tensor]  # [T] each: rows of the product's table, and of the residual's


class Normed(NamedTuple):
    """What LayerNorm leaves."""

    out: Tensor  # [T, D]
    means: Tensor  # [T] float32
    deviations: Tensor  # [T] float32, inverse
    rows8: Rows8 | None


class NormGradients(NamedTuple):
    """Gradients of the sum, [T, D], and of weight, shift and bias, [D] in float32."""

    summed: Tensor
    weight: Tensor
    shift: Tensor
    bias: Tensor
    rows8: Rows8 | None


@triton.jit
def _load_sum(
    product, residual, bias_row, ids, residual_ids, row, column, in_rows, valid,
    D: tl.constexpr, HAS_RESIDUAL: tl.constexpr, NAMED: tl.constexpr,
):  # fmt: skip
    first, second = row, row
    if NAMED:
        first = tl.load(ids + row, mask=in_rows, other=0)
        second = tl.load(residual_ids + row, mask=in_rows, other=0)
    places = first.to(tl.int64)[:, None] * D + column[None, :]
    values = tl.load(product + places, mask=valid, other=0.0).to(tl.float32) + bias_row
    if HAS_RESIDUAL:
        places = second.to(tl.int64)[:, None] * D + column[None, :]
        values += tl.load(residual + places, mask=valid, other=0.0).to(tl.float32)
    return values


@triton.jit(do_not_specialize=["zero"])
def norm_forward_kernel(
    product, residual, bias, ids, residual_ids, weight, shift, out, means, deviations, out8, scales, shrink, zero,
    num_rows, epsilon,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, NAMED: tl.constexpr, EIGHT: tl.constexpr, INT8: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    in_row, in_rows = column < D, row < num_rows
    valid = in_rows[:, None] & in_row[None, :]
    places = row.to(tl.int64)[:, None] * D + column[None, :]
    bias_row = tl.load(bias + column, mask=in_row, other=0.0)[None, :]
    values = _load_sum(
        product, residual, bias_row, ids, residual_ids, row, column, in_rows, valid, D, HAS_RESIDUAL, NAMED
    )
    mean = tl.sum(values, 1) / D
    centred = tl.where(valid, values - mean[:, None], 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / D + epsilon)
    scaled = centred * inverse[:, None] * tl.load(weight + column, mask=in_row, other=0.0)[None, :]
    scaled += tl.load(shift + column, mask=in_row, other=0.0)[None, :]
    tl.store(out + places, scaled.to(out.dtype.element_ty), mask=valid)
    tl.store(means + row, mean, mask=in_rows)
    tl.store(deviations + row, inverse, mask=in_rows)
    if EIGHT:
        tl.store(out8 + zero * 8 + places, (scaled * 8.0).to(out8.dtype.element_ty), mask=valid)
    if INT8:
        scaled *= tl.load(shrink + column, mask=in_row, other=0.0)[None, :]
        store_row8(scaled, out8 + zero * 8, scales, row, places, valid, in_rows)


@triton.jit(do_not_specialize=["zero"])
def norm_backward_kernel(
    d_out, d_more, product, residual, bias, ids, residual_ids, weight, means, deviations, d_summed, partial, d_summed8,
    scales, zero, num_rows,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, NAMED: tl.constexpr, HAS_MORE: tl.constexpr, EIGHT: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK)
    in_row = column < D
    bias_row = tl.load(bias + column, mask=in_row, other=0.0)[None, :]
    weight_row = tl.load(weight + column, mask=in_row, other=0.0)[None, :]
    d_weight = tl.zeros([BLOCK], tl.float32)
    d_shift = tl.zeros([BLOCK], tl.float32)
    d_bias = tl.zeros([BLOCK], tl.float32)
    for first in range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        in_rows = row < num_rows
        valid = in_rows[:, None] & in_row[None, :]
        places = row.to(tl.int64)[:, None] * D + column[None, :]
        grad = tl.load(d_out + places, mask=valid, other=0.0).to(tl.float32)
        if HAS_MORE:
            grad += tl.load(d_more + places, mask=valid, other=0.0).to(tl.float32)
        values = _load_sum(
            product, residual, bias_row, ids, residual_ids, row, column, in_rows, valid, D, HAS_RESIDUAL, NAMED
        )
        mean = tl.load(means + row, mask=in_rows, other=0.0)
        inverse = tl.load(deviations + row, mask=in_rows, other=0.0)
        normal = tl.where(valid, (values - mean[:, None]) * inverse[:, None], 0.0)
        d_shift += tl.sum(grad, 0)
        d_weight += tl.sum(grad * normal, 0)
        grad *= weight_row
        along = tl.sum(grad * normal, 1) / D
        level = tl.sum(grad, 1) / D
        d_values = tl.where(valid, (grad - normal * along[:, None] - level[:, None]) * inverse[:, None], 0.0)
        d_bias += tl.sum(d_values, 0)
        tl.store(d_summed + places, d_values.to(d_summed.dtype.element_ty), mask=valid)
        if EIGHT:
            store_row8(d_values, d_summed8 + zero * 8, scales, row, places, valid, in_rows)
    mine = partial + tl.program_id(0) * 3 * D + column
    tl.store(mine, d_weight, mask=in_row)
    tl.store(mine + D, d_shift, mask=in_row)
    tl.store(mine + 2 * D, d_bias, mask=in_row)


def norm_forward(
    product_TD: Tensor,
    residual_TD: Tensor | None,
    bias: Tensor,
    weight: Tensor,
    shift: Tensor,
    epsilon: float,
    *,
    ids: Ids | None = None,
    eight: bool = False,
    shrink: Tensor | None = None,
) -> Normed:
    """LayerNorm(product + bias + residual); also in e4m3 with a constant scale, or times `shrink` in int8 with a scale a row."""
    num_rows, width = (ids[0] if ids else product_TD).shape[0], product_TD.shape[1]
    out = torch.empty(num_rows, width, dtype=product_TD.dtype, device=product_TD.device)
    means = torch.empty(num_rows, dtype=torch.float32, device=out.device)
    deviations = torch.empty_like(means)
    rows8 = activation_rows8(out) if eight else empty_rows8(out, torch.int8) if shrink is not None else None
    norm_forward_kernel[(triton.cdiv(num_rows, ROWS),)](
        product_TD, residual_TD, bias, *(ids or (None, None)), weight, shift, out, means, deviations,
        *(rows8 or (None, None)), shrink, 0, num_rows, epsilon, width, triton.next_power_of_2(width), ROWS,
        residual_TD is not None, ids is not None, eight, shrink is not None, num_warps=1,
    )  # fmt: skip
    return Normed(out, means, deviations, rows8)


def norm_backward(
    d_out_TD: Tensor,
    product_TD: Tensor,
    residual_TD: Tensor | None,
    bias: Tensor,
    weight: Tensor,
    means: Tensor,
    deviations: Tensor,
    *,
    ids: Ids | None = None,
    d_more_TD: Tensor | None = None,
    eight: bool = False,
) -> NormGradients:
    """The reverse; `d_more` is a second part of the gradient that comes in."""
    num_rows, width = d_out_TD.shape
    d_summed = torch.empty(num_rows, width, dtype=product_TD.dtype, device=product_TD.device)
    programs = min(triton.cdiv(num_rows, ROWS_BACK), PROGRAMS_PER_CORE * num_cores(d_summed.device))
    partial = torch.empty(programs, 3, width, dtype=torch.float32, device=d_summed.device)
    rows8 = empty_rows8(d_summed) if eight else None
    norm_backward_kernel[(programs,)](
        d_out_TD, d_more_TD, product_TD, residual_TD, bias, *(ids or (None, None)), weight, means, deviations, d_summed,
        partial, *(rows8 or (None, None)), 0, num_rows, width, triton.next_power_of_2(width), ROWS_BACK,
        residual_TD is not None, ids is not None, d_more_TD is not None, eight, num_warps=2,
    )  # fmt: skip
    d_weight, d_shift, d_bias = partial.sum(0).unbind(0)
    return NormGradients(d_summed, d_weight, d_shift, d_bias, rows8)


def activation_rows8(like: Tensor) -> Rows8:
    """Room for activations in eight bits, with their constant scale."""
    values = torch.empty(like.shape, dtype=torch.float8_e4m3fn, device=like.device)
    return Rows8(values, torch.full((like.shape[0],), 1.0 / ACTIVATION, device=like.device))
