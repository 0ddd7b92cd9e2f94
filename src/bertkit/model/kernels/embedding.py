"""The three embeddings added up in one pass.

In: ids of tokens, segments and positions, [T]. Out: the sums, [T, D]. Backward, torch adds up the tokens' rows; those of
positions and segments, where thousands of tokens meet, are a product with their indicator matrix.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 4


@triton.jit
def embed_forward_kernel(
    token_ids, segment_ids, position_ids, tokens, segments, positions, out, num_rows,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    known = row < num_rows
    valid = known[:, None] & (column < D)[None, :]
    token = tl.load(token_ids + row, mask=known, other=0)
    segment = tl.load(segment_ids + row, mask=known, other=0)
    position = tl.load(position_ids + row, mask=known, other=0)
    summed = tl.load(tokens + token[:, None] * D + column[None, :], mask=valid, other=0.0).to(tl.float32)
    summed += tl.load(segments + segment[:, None] * D + column[None, :], mask=valid, other=0.0).to(tl.float32)
    summed += tl.load(positions + position[:, None] * D + column[None, :], mask=valid, other=0.0).to(tl.float32)
    places = row.to(tl.int64)[:, None] * D + column[None, :]
    tl.store(out + places, summed.to(out.dtype.element_ty), mask=valid)


def embed(
    token_ids: Tensor, segment_ids: Tensor, position_ids: Tensor, tokens: Tensor, segments: Tensor, positions: Tensor
) -> Tensor:
    """Token + segment + position, in the token table's type: [T, D]."""
    num_rows, width = token_ids.shape[0], tokens.shape[1]
    out = torch.empty(num_rows, width, dtype=tokens.dtype, device=tokens.device)
    grid = (triton.cdiv(num_rows, ROWS),)
    block = triton.next_power_of_2(width)
    ids = (token_ids, segment_ids, position_ids)
    embed_forward_kernel[grid](*ids, tokens, segments, positions, out, num_rows, width, block, ROWS, num_warps=4)
    return out


def indicator(ids: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """[T, size] with a one where a token has this id."""
    return torch.zeros(ids.shape[0], size, dtype=dtype, device=ids.device).scatter_(1, ids[:, None], 1)
