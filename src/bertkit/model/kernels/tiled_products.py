"""Products by a kernel of ours: of int8 with a scale a row, which torch does not multiply, and GELU of a product.

Int8 with a scale a token and one an output is three times as exact as e4m3, as fast, and its sums are whole numbers, so
nothing is lost in them. cuBLASLt computes GELU's tanh at length, for a quarter of the product's time; here it is one
instruction, and the tiles of the next product are copied meanwhile. GELU is in its tanh form.
Dimensions: T rows, K inputs, N outputs.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertkit.model.kernels import products
from bertkit.model.kernels.bulk import ALIGNED, copies_in_bulk, in_tiles
from bertkit.model.kernels.e4m3 import ACTIVATION
from bertkit.model.kernels.rows8 import Rows8, num_cores


class Tiles(NamedTuple):
    """How a product is cut, and how many programs share a core.

    A tile is written in one part, or in two halves through the same memory on chip; with a third, it has half as many
    outputs again, so that rows are read less often.
    """

    rows: int
    outputs: int
    inputs: int
    warps: int
    stages: int
    programs: int
    parts: int = 1


HALF = Tiles(256, 128, 64, warps=8, stages=3, programs=1)
INT8 = Tiles(256, 128, 128, warps=8, stages=3, programs=1)
INT8_GELU = Tiles(128, 128, 128, warps=4, stages=3, programs=2, parts=2)


@triton.jit
def _gelu(x):
    inner = x * (0.7978845608028654 + 0.035677408136300125 * x * x)
    tanh = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [inner], dtype=tl.float32, is_pure=True, pack=1)
    half = 0.5 * x
    return half * tanh + half


@triton.jit
def _finish(
    summed, bias, row_scales, scales, line, place, T, N: tl.constexpr,
    INT8: tl.constexpr, HAS_BIAS: tl.constexpr, GELU: tl.constexpr, FACTOR: tl.constexpr,
):  # fmt: skip
    """What a tile's sums become."""
    made = summed.to(tl.float32)
    if INT8:
        made *= tl.load(row_scales + line, mask=line < T, other=0.0)[:, None]
        made *= tl.load(scales + place, mask=place < N, other=0.0)[None, :]
    if HAS_BIAS:
        made += tl.load(bias + place, mask=place < N, other=0.0).to(tl.float32)[None, :]
    if GELU:
        made = _gelu(made)
    return made * FACTOR


@triton.jit
def product_kernel(
    rows, weights, weights_beside, out, bias, row_scales, scales, T,
    N: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr,
    INT8: tl.constexpr, HAS_BIAS: tl.constexpr, GELU: tl.constexpr, FACTOR: tl.constexpr,
):  # fmt: skip
    """Every program makes one tile after another, those of the same rows side by side."""
    PART: tl.constexpr = BN if PARTS == 1 else BN // 2
    WIDE: tl.constexpr = PART * PARTS
    ACROSS: tl.constexpr = (N + WIDE - 1) // WIDE
    SUMS: tl.constexpr = tl.int32 if INT8 else tl.float32
    for tile in tl.range(tl.program_id(0), tl.cdiv(T, BT) * ACROSS, tl.num_programs(0), flatten=True):
        row, output = tile // ACROSS * BT, tile % ACROSS * WIDE
        line = row + tl.arange(0, BT)
        summed = tl.zeros([BT, BN], SUMS)
        if PARTS == 3:
            beside = tl.zeros([BT, PART], SUMS)
        for first in range(0, K, BK):
            some = rows.load([row, first])
            summed = tl.dot(some, weights.load([output, first]).T, summed, out_dtype=SUMS)
            if PARTS == 3:
                beside = tl.dot(some, weights_beside.load([output + BN, first]).T, beside, out_dtype=SUMS)
        if PARTS == 1:
            parts = (summed,)
        else:
            left, right = tl.split(tl.permute(tl.reshape(summed, [BT, 2, PART]), [0, 2, 1]))
            parts = (left, right) if PARTS == 2 else (left, right, beside)  # type: ignore[assignment]
        for part in tl.static_range(PARTS):
            place = output + part * PART
            made = _finish(
                parts[part], bias, row_scales, scales, line, place + tl.arange(0, PART), T, N,
                INT8, HAS_BIAS, GELU, FACTOR,
            )  # fmt: skip
            out.store([row, place], made.to(out.dtype))


def gelu_product(rows_TK: Tensor, weights_NK: Tensor, bias: Tensor) -> Tensor:
    """gelu(rows @ weights.T + bias), in half precision: by our kernel on Hopper, elsewhere by cuBLASLt."""
    sizes = rows_TK.shape[1], weights_NK.shape[0]
    fits = all(size * rows_TK.itemsize % ALIGNED == 0 for size in sizes)
    laid_out = rows_TK.is_contiguous() and weights_NK.is_contiguous() and not weights_NK.data_ptr() % ALIGNED
    if fits and laid_out and copies_in_bulk(rows_TK.device):
        return launch(rows_TK, weights_NK, bias, gelu=True)
    return products.gelu_product(rows_TK, weights_NK, bias)


def product_int8(rows: Rows8, weights: Rows8, bias: Tensor | None = None) -> Tensor:
    """rows @ weights.T + bias, in bf16."""
    return launch(rows.values, weights.values, bias, (rows.scales, weights.scales))


def gelu_product_int8(rows: Rows8, weights: Rows8, bias: Tensor) -> Tensor:
    """gelu(rows @ weights.T + bias) in e4m3, at ACTIVATION times its worth."""
    return launch(rows.values, weights.values, bias, (rows.scales, weights.scales), gelu=True)


def launch(
    rows_TK: Tensor,
    weights_NK: Tensor,
    bias: Tensor | None,
    scales: tuple[Tensor, Tensor] | None = None,
    *,
    gelu: bool = False,
) -> Tensor:
    """The kernel itself; with scales, rows and weights are in int8."""
    (num_rows, num_inputs), num_outputs = rows_TK.shape, weights_NK.shape[0]
    kind, factor, cut = rows_TK.dtype, 1.0, HALF
    if scales is not None:
        kind, factor, cut = (torch.float8_e4m3fn, ACTIVATION, INT8_GELU) if gelu else (torch.bfloat16, 1.0, INT8)
    out = torch.empty(num_rows, num_outputs, dtype=kind, device=rows_TK.device)
    if not num_rows:
        return out
    part = cut.outputs if cut.parts == 1 else cut.outputs // 2
    tiles = (
        in_tiles(rows_TK, cut.rows, cut.inputs),
        in_tiles(weights_NK, cut.outputs, cut.inputs),
        in_tiles(weights_NK, part, cut.inputs) if cut.parts == 3 else None,
        in_tiles(out, cut.rows, part),
    )
    num_tiles = triton.cdiv(num_rows, cut.rows) * triton.cdiv(num_outputs, part * cut.parts)
    product_kernel[(min(num_tiles, cut.programs * num_cores(out.device)),)](
        *tiles, bias, *(scales or (None, None)), num_rows, num_outputs, num_inputs,
        cut.rows, cut.outputs, cut.inputs, cut.parts, scales is not None, bias is not None, gelu, factor,
        num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    return out
