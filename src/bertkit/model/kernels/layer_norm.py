"""LayerNorm of (sum of residual and product) + bias, one pass each way.

In: the sum as the product left it, [T, D], and the product's bias, added here. Out: the normalised rows with their
means and inverse deviations; backward, the gradient of the sum and those of weight, shift and bias, which are added up
per program and then over the programs, so that the order is always the same.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 4  # rows of a tile
PROGRAMS_PER_CORE = 4


@triton.jit
def _forward(
    summed, bias, weight, shift, out, means, deviations, num_rows, epsilon,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    valid = (row < num_rows)[:, None] & (column < D)[None, :]
    places = row.to(tl.int64)[:, None] * D + column[None, :]
    values = tl.load(summed + places, mask=valid, other=0.0).to(tl.float32)
    values += tl.load(bias + column, mask=column < D, other=0.0)[None, :]
    mean = tl.sum(values, 1) / D
    centred = tl.where(valid, values - mean[:, None], 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / D + epsilon)
    scaled = centred * inverse[:, None] * tl.load(weight + column, mask=column < D, other=0.0)[None, :]
    scaled += tl.load(shift + column, mask=column < D, other=0.0)[None, :]
    tl.store(out + places, scaled.to(out.dtype.element_ty), mask=valid)
    tl.store(means + row, mean, mask=row < num_rows)
    tl.store(deviations + row, inverse, mask=row < num_rows)


@triton.jit
def _backward(
    d_out, summed, bias, weight, means, deviations, d_summed, partial, num_rows,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
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
        valid = (row < num_rows)[:, None] & in_row[None, :]
        places = row.to(tl.int64)[:, None] * D + column[None, :]
        grad = tl.load(d_out + places, mask=valid, other=0.0).to(tl.float32)
        values = tl.load(summed + places, mask=valid, other=0.0).to(tl.float32) + bias_row
        mean = tl.load(means + row, mask=row < num_rows, other=0.0)
        inverse = tl.load(deviations + row, mask=row < num_rows, other=0.0)
        normal = tl.where(valid, (values - mean[:, None]) * inverse[:, None], 0.0)
        d_shift += tl.sum(grad, 0)
        d_weight += tl.sum(grad * normal, 0)
        grad *= weight_row
        along = tl.sum(grad * normal, 1) / D
        level = tl.sum(grad, 1) / D
        d_values = tl.where(valid, (grad - normal * along[:, None] - level[:, None]) * inverse[:, None], 0.0)
        d_bias += tl.sum(d_values, 0)
        tl.store(d_summed + places, d_values.to(d_summed.dtype.element_ty), mask=valid)
    mine = partial + tl.program_id(0) * 3 * D + column
    tl.store(mine, d_weight, mask=in_row)
    tl.store(mine + D, d_shift, mask=in_row)
    tl.store(mine + 2 * D, d_bias, mask=in_row)


def norm_forward(
    summed_TD: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised rows, [T, D], and the mean and inverse deviation of each, [T] in float32."""
    num_rows, width = summed_TD.shape
    out = torch.empty_like(summed_TD)
    means = torch.empty(num_rows, dtype=torch.float32, device=out.device)
    deviations = torch.empty_like(means)
    grid = (triton.cdiv(num_rows, ROWS),)
    block = triton.next_power_of_2(width)
    _forward[grid](
        summed_TD, bias, weight, shift, out, means, deviations, num_rows, epsilon, width, block, ROWS, num_warps=4
    )
    return out, means, deviations


def norm_backward(
    d_out_TD: Tensor, summed_TD: Tensor, bias: Tensor, weight: Tensor, means: Tensor, deviations: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the sum, [T, D], and of weight, shift and bias, [D] in float32."""
    num_rows, width = summed_TD.shape
    d_summed = torch.empty_like(summed_TD)
    programs = min(triton.cdiv(num_rows, ROWS), PROGRAMS_PER_CORE * num_cores(summed_TD.device))
    partial = torch.empty(programs, 3, width, dtype=torch.float32, device=summed_TD.device)
    block = triton.next_power_of_2(width)
    _backward[(programs,)](
        d_out_TD, summed_TD, bias, weight, means, deviations, d_summed, partial, num_rows, width, block, ROWS, num_warps=4
    )
    d_weight, d_shift, d_bias = partial.sum(0).unbind(0)
    return d_summed, d_weight, d_shift, d_bias


def num_cores(device: torch.device) -> int:
    """Multiprocessors of the device; a few where a kernel is only being interpreted."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2
