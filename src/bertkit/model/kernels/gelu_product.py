"""GELU, in its tanh form, of a product and a bias: by a kernel of ours on Hopper, elsewhere by cuBLASLt (products.py).

cuBLASLt computes tanh at length, for a quarter of the product's time. Here it is one instruction, and the tiles of the next
product are copied meanwhile. Rows and weights are in half precision or in eight bits, as products.py has them; so is what
comes out.
Dimensions: T rows, K inputs, N outputs.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertkit.model.kernels import products
from bertkit.model.kernels.bulk import ALIGNED, copies_in_bulk, in_tiles
from bertkit.model.kernels.products import Matrix8
from bertkit.model.kernels.rows8 import num_cores


class Tiles(NamedTuple):
    """How a product is cut, and how many programs share a core."""

    rows: int
    outputs: int
    inputs: int
    warps: int
    stages: int
    programs: int


HALF = Tiles(256, 128, 64, warps=8, stages=3, programs=1)
EIGHT = Tiles(128, 128, 128, warps=4, stages=3, programs=2)


@triton.jit
def _gelu(x):
    inner = x * (0.7978845608028654 + 0.035677408136300125 * x * x)
    tanh = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [inner], dtype=tl.float32, is_pure=True, pack=1)
    half = 0.5 * x
    return half * tanh + half


@triton.jit
def gelu_product_kernel(
    rows, weights, out, bias, scale, T,
    N: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EIGHT: tl.constexpr,
):  # fmt: skip
    """Every program makes one tile after another, those of the same rows side by side."""
    ACROSS: tl.constexpr = (N + BN - 1) // BN
    factor = 1.0
    if EIGHT:
        factor = tl.load(scale) / 8.0
    for tile in tl.range(tl.program_id(0), tl.cdiv(T, BT) * ACROSS, tl.num_programs(0), flatten=True):
        row, output = tile // ACROSS * BT, tile % ACROSS * BN
        summed = tl.zeros([BT, BN], tl.float32)
        for first in range(0, K, BK):
            summed = tl.dot(rows.load([row, first]), weights.load([output, first]).T, summed)
        place = output + tl.arange(0, BN)
        added = tl.load(bias + place, mask=place < N, other=0.0).to(tl.float32)
        active = _gelu(summed * factor + added[None, :])
        if EIGHT:
            active *= 8.0
        out.store([row, output], active.to(out.dtype))


def gelu_product(rows_TK: Tensor, weights_NK: Tensor, bias: Tensor) -> Tensor:
    """gelu(rows @ weights.T + bias)."""
    if _is_for_our_kernel(rows_TK, weights_NK):
        return launch(rows_TK, weights_NK, bias)
    return products.gelu_product(rows_TK, weights_NK, bias)


def gelu_product8(rows8_TK: Tensor, weights: Matrix8, bias: Tensor) -> Tensor:
    """gelu(rows @ weights.T + bias), from eight bits to eight bits; the bias is in bf16."""
    if _is_for_our_kernel(rows8_TK, weights.values):
        return launch(rows8_TK, weights.values, bias, weights.scale)
    return products.gelu_product8(rows8_TK, weights, bias)


def _is_for_our_kernel(rows: Tensor, weights: Tensor) -> bool:
    fits = all(size * rows.itemsize % ALIGNED == 0 for size in weights.shape)
    laid_out = rows.is_contiguous() and weights.is_contiguous() and not weights.data_ptr() % ALIGNED
    return fits and laid_out and copies_in_bulk(rows.device)


def launch(rows_TK: Tensor, weights_NK: Tensor, bias: Tensor, scale: Tensor | None = None) -> Tensor:
    """The kernel itself; with a scale, rows and weights are in eight bits."""
    (num_rows, num_inputs), num_outputs = rows_TK.shape, weights_NK.shape[0]
    out = torch.empty(num_rows, num_outputs, dtype=rows_TK.dtype, device=rows_TK.device)
    if not num_rows:
        return out
    cut = HALF if scale is None else EIGHT
    shapes = ((rows_TK, cut.rows, cut.inputs), (weights_NK, cut.outputs, cut.inputs), (out, cut.rows, cut.outputs))
    num_tiles = triton.cdiv(num_rows, cut.rows) * triton.cdiv(num_outputs, cut.outputs)
    gelu_product_kernel[(min(num_tiles, cut.programs * num_cores(out.device)),)](
        *(in_tiles(*shape) for shape in shapes), bias, scale, num_rows, num_outputs, num_inputs,
        cut.rows, cut.outputs, cut.inputs, scale is not None, num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    return out
