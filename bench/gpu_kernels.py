"""What each of our kernels takes on this GPU beside the least that it could: the bytes it moves, at the speed of a copy.

    python -m bench.gpu_kernels [--size base] [--tokens 65536] [--tune]

With --tune also other launch options of short attention, and other numbers of cuBLASLt's algorithms to choose from:
what is faster here belongs into the kernels' files.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product as combinations
from typing import Any

import torch
from torch import Tensor
from triton.testing import do_bench

from bertkit.model.config import preset
from bertkit.model.kernels import attention, products, tiled_products
from bertkit.model.kernels.bulk import copies_in_bulk
from bertkit.model.kernels.bulk_attention import bulk_attention_forward
from bertkit.model.kernels.gelu import gelu_backward_, gelu_forward
from bertkit.model.kernels.layer_norm import norm_backward, norm_forward
from bertkit.model.kernels.long_attention import long_attention_backward, long_attention_forward
from bertkit.model.kernels.rows8 import add_product8_, narrow_and_sum, narrow_rows, product8, to_int8

DEVICE = "cuda"
LONG = 512
WARPS, REGISTERS = (4, 8), (None, 128, 168)
CANDIDATES = (1, 8, 32)  # of cuBLASLt's algorithms
Cut = tiled_products.Tiles  # rows, outputs, inputs, warps, stages, programs, parts
HALVES = (
    Cut(256, 128, 64, 8, 3, 1, 3),
    Cut(256, 128, 32, 8, 5, 1, 3),
    Cut(256, 128, 64, 8, 4, 1, 2),
    Cut(128, 256, 64, 8, 3, 1),
    Cut(128, 256, 64, 8, 4, 1, 2),
)
WHOLES = (
    Cut(128, 128, 128, 4, 2, 2),
    Cut(128, 128, 128, 4, 3, 2, 2),
    Cut(128, 128, 64, 4, 4, 2),
    Cut(128, 256, 128, 8, 3, 1),
    Cut(256, 128, 128, 8, 3, 1),
    Cut(256, 128, 64, 8, 4, 1),
    Cut(256, 128, 128, 8, 4, 1, 2),
    Cut(256, 128, 128, 8, 3, 1, 3),
    Cut(256, 128, 64, 8, 5, 1, 3),
)


class Report:
    """Times a kernel and prints its line of the table."""

    def __init__(self) -> None:
        source = torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE)
        target = torch.empty_like(source)
        self.bytes_per_ms = 2 * source.numel() / milliseconds(partial(target.copy_, source))
        print(f"{torch.cuda.get_device_name()}; a copy moves {self.bytes_per_ms / 1e9:.2f} TB/s\n")
        print("| kernel | ms | by its bytes | TFLOP/s |\n|---|---|---|---|")

    def __call__(self, name: str, run: Callable[[], Any], num_bytes: float, operations: float = 0.0) -> None:
        """The bytes that it has to move, and the operations of its products."""
        taken = milliseconds(run)
        rate = f"{operations / taken / 1e9:.0f}" if operations else ""
        print(f"| {name} | {taken:.3f} | {num_bytes / self.bytes_per_ms:.3f} | {rate} |", flush=True)


def milliseconds(run: Callable[[], Any]) -> float:
    """The median of many runs."""
    return float(do_bench(run, warmup=20, rep=60, return_mode="median"))


def half(*shape: int) -> Tensor:
    """Numbers as they are in a model: products run faster on zeros."""
    return torch.randn(*shape, device=DEVICE).bfloat16()


def time_passes(report: Report, tokens: int, width: int, wide: int) -> None:
    """What lies between the products, with eight bits and without."""
    rows, other, row = half(tokens, width), half(tokens, width), torch.ones(width, device=DEVICE)
    up, d_up, wide_row = half(tokens, wide), half(tokens, wide), torch.ones(wide, device=DEVICE)
    normed = norm_forward(rows, other, row, row, row, 1e-12)
    stats = (rows, row, row, normed.means, normed.deviations)
    for eight in (False, True):
        said, more = " in eight bits too" if eight else "", int(eight)
        forward = partial(norm_forward, rows, other, row, row, row, 1e-12, eight=eight)
        report(f"LayerNorm{said}", forward, (6 + more) * rows.numel())
        backward = partial(norm_backward, rows, other, *stats, eight=eight)
        report(f"LayerNorm backward{said}", backward, (8 + more) * rows.numel())
        report(f"GELU{said}", partial(gelu_forward, up, wide_row, eight=eight), (4 + more) * up.numel())
        scales = (torch.ones(tokens, device=DEVICE), torch.ones(1, device=DEVICE)) if eight else ()
        report(f"GELU backward{said}", partial(gelu_backward_, d_up, up, wide_row, *scales), (6 + more) * up.numel())
    d_qkv = half(tokens, 3 * width)
    report("rows in eight bits with their sum", partial(narrow_and_sum, d_qkv), 3 * d_qkv.numel())


def time_attention(report: Report, tokens: int, heads: int, width: int, *, tune: bool) -> None:
    """Of full short rows, with each of the options, and of long ones."""
    qkv, grad, bias = half(tokens, 3, heads, width), half(tokens, heads, width), half(3 * heads * width).float()
    moved, operations = float(grad.numel()), 4.0 * tokens * heads * width
    short, long = (torch.arange(0, tokens + 1, n, device=DEVICE, dtype=torch.int32) for n in (attention.LONGEST, LONG))
    name, given = f"attention, {attention.LONGEST}", (short, attention.LONGEST)
    done = operations * attention.LONGEST
    if copies_in_bulk(qkv.device):
        report(f"{name} in bulk", partial(bulk_attention_forward, qkv, bias, *given), 8 * moved, done)
    chosen = attention.FORWARD, attention.BACKWARD
    for options in (None, *(other_options() if tune else ())):
        if options is not None:
            attention.FORWARD, attention.BACKWARD = options, options
        forward = partial(attention.attention_forward, qkv, bias, *given)
        report(f"{name}, {attention.FORWARD}", forward, 8 * moved, done)
        back = partial(attention.attention_backward, grad, qkv, bias, *given)
        report(f"{name} backward, {attention.BACKWARD}", back, 14 * moved, 2.5 * done)
    attention.FORWARD, attention.BACKWARD = chosen
    mixed, normalisers = long_attention_forward(qkv, long, LONG)
    report(f"attention, {LONG}", partial(long_attention_forward, qkv, long, LONG), 8 * moved, operations * LONG)
    long_back = partial(long_attention_backward, grad, qkv, mixed, normalisers, long, LONG)
    report(f"attention, {LONG} backward", long_back, 16 * moved, 3.5 * operations * LONG)


def other_options() -> Iterator[dict[str, int]]:
    """Launch options to try."""
    for warps, registers in combinations(WARPS, REGISTERS):
        yield {"num_warps": warps} if registers is None else {"num_warps": warps, "maxnreg": registers}


def time_product(report: Report, name: str, tokens: int, inputs: int, outputs: int, *, tune: bool) -> None:
    """One of a layer's products in bf16 and in eight bits, by torch and by cuBLASLt with what may follow it."""
    rows, weights, bias, residual = (
        half(tokens, inputs),
        half(outputs, inputs) * 0.02,
        half(outputs),
        half(tokens, outputs),
    )
    rows8, weights8, matrix8 = narrow_rows(rows[None]), narrow_rows(weights[None]), products.narrow_matrix(weights)
    wide, narrow = 2.0 * (rows.numel() + residual.numel()), 2.0 * residual.numel() + rows.numel()
    operations = 2.0 * tokens * inputs * outputs
    time_tiles(report, name, (rows, weights, bias), wide, operations, tune=tune)
    report(f"{name}, bf16 by torch", partial(torch.mm, rows, weights.t()), wide, operations)
    report(f"{name}, eight bits by torch", partial(product8, rows8, weights8), narrow, operations)
    chosen = products.CANDIDATES
    for candidates in CANDIDATES if tune else (chosen,):
        products.CANDIDATES = candidates
        products._plan.cache_clear()
        best = f"best of {candidates}"
        report(f"{name}, bf16, {best}", partial(products.product, rows, weights), wide, operations)
        with_gelu = partial(products.gelu_product, rows, weights, bias)
        report(f"{name} with GELU, bf16, cuBLASLt, {best}", with_gelu, wide, operations)
        added = partial(products.add_product8_, rows8.values, matrix8, residual)
        report(f"{name} added to, eight bits, {best}", added, narrow, operations)
        added = partial(add_product8_, residual, rows8, weights8)
        report(f"{name} added to, a scale a row, {best}", added, narrow, operations)
    products.CANDIDATES = chosen


def time_tiles(
    report: Report, name: str, matrices: tuple[Tensor, Tensor, Tensor], wide: float, operations: float, *, tune: bool
) -> None:
    """The same by our kernels; what they are cut into stays as it was."""
    rows, weights, bias = matrices
    least = float(rows.shape[0] * (rows.shape[1] + weights.shape[0]))
    whole = to_int8(rows), to_int8(weights)
    known = tiled_products.HALF, tiled_products.INT8, tiled_products.INT8_GELU
    for cut in (None, *(HALVES if tune else ())):
        tiled_products.HALF = cut or known[0]
        way = f"bf16, ours {tuple(cut) if cut else ''}"
        report(f"{name}, {way}", partial(tiled_products.launch, rows, weights, None), wide, operations)
        report(
            f"{name} with GELU, {way}", partial(tiled_products.launch, rows, weights, bias, gelu=True), wide, operations
        )
    for cut in (None, *(WHOLES if tune else ())):
        tiled_products.INT8, tiled_products.INT8_GELU = (cut, cut) if cut else known[1:]
        way = f"int8 {tuple(cut) if cut else ''}"
        report(f"{name}, {way}", partial(tiled_products.product_int8, *whole), least, operations)
        report(f"{name} with GELU, {way}", partial(tiled_products.gelu_product_int8, *whole, bias), least, operations)
    tiled_products.HALF, tiled_products.INT8, tiled_products.INT8_GELU = known


def main() -> None:
    """Time everything, a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base")
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--tune", action="store_true")
    given = parser.parse_args()
    config = preset(given.size)
    width, wide = config.hidden_size, config.intermediate_size
    report = Report()
    time_attention(report, given.tokens, config.num_heads, config.head_size, tune=given.tune)
    sizes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, wide), "down": (wide, width)}
    for name, (inputs, outputs) in {**sizes, "gradient of qkv": (3 * width, width)}.items():
        time_product(report, name, given.tokens, inputs, outputs, tune=given.tune)
    time_passes(report, given.tokens, width, wide)


if __name__ == "__main__":
    main()
