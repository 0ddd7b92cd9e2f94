"""Rows in eight bits (e4m3; sentence vectors also int8) with one scale each, and products of those in e4m3.

e4m3 keeps about the same relative precision over five orders of magnitude, so a scale only has to be about right.
Weights (by output channel) and gradients where their producer has the whole row on chip have the scale that brings
their largest value to the largest number; activations, whose size LayerNorm fixes, have one constant scale.

Kernels store eight bits through `+ zero * 8`, zero being 0: told no more than that, the compiler stores eight values at
a time, as it does in bf16, instead of moving every tile into a layout for sixteen, which took three times as long.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertkit.model.kernels.products import add_scaled_product8_, has_row_scales

SUMMED, SUMMING_A_CORE = 2, 4  # rows of a tile, programs


class Rows8(NamedTuple):
    """values * scales[:, None] is what was meant."""

    values: Tensor  # [R, K] e4m3 or int8
    scales: Tensor  # [R] float32


@triton.jit
def store_row8(values, values8, scales, row, places, valid, in_rows):
    """Store a tile of whole rows, [ROWS, BLOCK] in float32, in eight bits with its scales."""
    kind: tl.constexpr = values8.dtype.element_ty
    largest: tl.constexpr = 127.0 if kind == tl.int8 else 448.0
    scale = tl.maximum(tl.max(tl.where(valid, tl.abs(values), 0.0), 1), 1e-20) / largest  # zeros have a scale too
    scaled = values / scale[:, None]
    if kind == tl.int8:
        scaled = tl.floor(scaled + 0.5)
    tl.store(values8 + places, scaled.to(kind), mask=valid)
    tl.store(scales + row, scale, mask=in_rows)


@triton.jit
def narrow_rows_kernel(
    source, values8, scales, num_columns, stride_group, stride_row, stride_column, ROWS_A_GROUP,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rows of a stack of matrices, each read by its own strides, so that a transpose is no step of its own."""
    first = tl.program_id(0) * ROWS
    group = first // ROWS_A_GROUP
    row = first + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    valid = (row >= 0)[:, None] & (column < num_columns)[None, :]
    inside = (row - group * ROWS_A_GROUP).to(tl.int64)[:, None] * stride_row + column[None, :] * stride_column
    values = tl.load(source + group.to(tl.int64) * stride_group + inside, mask=valid, other=0.0).to(tl.float32)
    places = row.to(tl.int64)[:, None] * num_columns + column[None, :]
    store_row8(values, values8, scales, row, places, valid, row >= 0)


def narrow_rows(stack_GRK: Tensor, into: Rows8 | None = None) -> Rows8:
    """Every row of every matrix of a stack (any strides) in eight bits: values [G * R, K]."""
    groups, rows, columns = stack_GRK.shape
    if into is None:
        into = Rows8(
            torch.empty(groups * rows, columns, dtype=torch.float8_e4m3fn, device=stack_GRK.device),
            torch.empty(groups * rows, dtype=torch.float32, device=stack_GRK.device),
        )
    tile = 1 if stack_GRK.stride(2) == 1 else 16  # a transposed matrix is read 16 neighbours at a time
    narrow_rows_kernel[(groups * rows // tile,)](
        stack_GRK,
        *into,
        columns,
        *stack_GRK.stride(),
        rows,
        tile,
        triton.next_power_of_2(columns),
        num_warps=4 if tile == 1 else 16,
    )
    return into


@triton.jit(do_not_specialize=["zero"])
def narrow_and_sum_kernel(
    source, values8, scales, partial, zero, num_rows,
    K: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK)
    in_row = column < K
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        in_rows = row < num_rows
        valid = in_rows[:, None] & in_row[None, :]
        places = row.to(tl.int64)[:, None] * K + column[None, :]
        values = tl.load(source + places, mask=valid, other=0.0).to(tl.float32)
        total += tl.sum(values, 0)
        store_row8(values, values8 + zero * 8, scales, row, places, valid, in_rows)
    tl.store(partial + tl.program_id(0) * K + column, total, mask=in_row)


def narrow_and_sum(source_RK: Tensor) -> tuple[Rows8, Tensor]:
    """Rows in eight bits, and the sum of all rows as they were, [K] in float32."""
    num_rows, width = source_RK.shape
    rows8 = empty_rows8(source_RK)
    programs = min(triton.cdiv(num_rows, SUMMED), SUMMING_A_CORE * num_cores(source_RK.device))
    partial = torch.empty(programs, width, dtype=torch.float32, device=source_RK.device)
    sizes = (0, num_rows, width, triton.next_power_of_2(width), SUMMED)
    narrow_and_sum_kernel[(programs,)](source_RK, *rows8, partial, *sizes, num_warps=4)
    return rows8, partial.sum(0)


def empty_rows8(like: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> Rows8:
    """Room for these rows in eight bits."""
    values = torch.empty(like.shape, dtype=dtype, device=like.device)
    return Rows8(values, torch.empty(like.shape[0], dtype=torch.float32, device=like.device))


def to_int8(weights_NK: Tensor) -> Rows8:
    """Every output's weights in int8, with its scale."""
    weights = weights_NK.detach().float()
    scales = weights.abs().amax(1).clamp(min=1e-20) / 127
    return Rows8((weights / scales[:, None]).round().to(torch.int8), scales)


def num_cores(device: torch.device) -> int:
    """Multiprocessors of the device; a few where a kernel is only being interpreted."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def product8(rows: Rows8, weight: Rows8, bias: Tensor | None = None) -> Tensor:
    """rows @ weight.T + bias in bf16, added up in float32."""
    return torch._scaled_mm(
        rows.values,
        weight.values.t(),
        scale_a=rows.scales[:, None],
        scale_b=weight.scales[None, :],
        bias=None if bias is None else bias.to(torch.bfloat16),
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


def add_product8_(out: Tensor, rows: Rows8, weight: Rows8) -> Tensor:
    """out += rows @ weight.T, in bf16."""
    if has_row_scales(out.device):
        return add_scaled_product8_(*rows, *weight, out)
    return out.add_(product8(rows, weight))
