"""The three embeddings added up in one pass, and their gradients without colliding writes.

In: ids of tokens, segments and positions, [T]. Out: the sums, [T, D]. Backward, tokens are sorted so that one program
owns each row of the table; positions and segments, where thousands of tokens meet in one row, are a product with
their indicator matrix.
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


@triton.jit
def _add_tokens(order, starts, grad, d_tokens, D: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    token = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first, last = tl.load(starts + token), tl.load(starts + token + 1)
    total = tl.zeros([COLUMNS], tl.float32)
    for at in range(first, last, ROWS):
        place = at + tl.arange(0, ROWS)
        row = tl.load(order + place, mask=place < last, other=0)
        valid = (place < last)[:, None] & (column < D)[None, :]
        total += tl.sum(tl.load(grad + row[:, None] * D + column[None, :], mask=valid, other=0.0).to(tl.float32), 0)
    tl.store(d_tokens + token.to(tl.int64) * D + column, total, mask=column < D)


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


def token_gradient(grad_TD: Tensor, token_ids: Tensor, vocabulary: int) -> Tensor:
    """The sum of each token's rows, [V, D] in float32; the same order every time."""
    width = grad_TD.shape[1]
    ordered, order = token_ids.sort(stable=True)
    every = torch.arange(vocabulary + 1, device=token_ids.device)
    starts = torch.searchsorted(ordered, every)
    out = torch.empty(vocabulary, width, dtype=torch.float32, device=grad_TD.device)
    columns = 128
    grid = (vocabulary, triton.cdiv(width, columns))
    _add_tokens[grid](order, starts, grad_TD, out, width, columns, 32, num_warps=4)
    return out


def indicator(ids: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """[T, size] with a one where a token has this id."""
    return torch.zeros(ids.shape[0], size, dtype=dtype, device=ids.device).scatter_(1, ids[:, None], 1)
