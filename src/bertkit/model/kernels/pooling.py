"""The mean of each sequence's rows in one pass, added up in float32. In: [T, D] and where sequences begin. Out: [N, D]."""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 32, 256  # of a tile


@triton.jit
def mean_rows_kernel(hidden, cu_seqlens, out, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    start = tl.load(cu_seqlens + tl.program_id(0))
    stop = tl.load(cu_seqlens + tl.program_id(0) + 1)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    summed = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(start, stop, ROWS):
        row = first + tl.arange(0, ROWS)
        valid = (row < stop)[:, None] & (column < D)[None, :]
        summed += tl.load(hidden + row.to(tl.int64)[:, None] * D + column[None, :], mask=valid, other=0.0).to(
            tl.float32
        )
    mean = tl.sum(summed, 0) / (stop - start).to(tl.float32)
    tl.store(out + tl.program_id(0) * D + column, mean, mask=column < D)


def mean_rows(hidden_TD: Tensor, cu_seqlens: Tensor) -> Tensor:
    """One vector a sequence, in float32; a sequence without tokens has none (NaN)."""
    num, width = cu_seqlens.shape[0] - 1, hidden_TD.shape[1]
    out = torch.empty(num, width, dtype=torch.float32, device=hidden_TD.device)
    grid = (num, triton.cdiv(width, COLUMNS))
    with torch.cuda.device_of(hidden_TD):
        mean_rows_kernel[grid](hidden_TD, cu_seqlens, out, width, ROWS, COLUMNS, num_warps=4)
    return out
