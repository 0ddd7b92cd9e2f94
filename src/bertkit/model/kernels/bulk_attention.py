"""Attention of short packed sequences without a gradient, on Hopper: the next head's tiles are copied while one is computed.

In and out as in attention.py, whose kernel serves everything else. A tile begins where its sequence begins and is as high as
the longest may be, so it ends among the next sequence's tokens: those have no weight, and are finite in bf16.
Dimensions: T tokens, N sequences, H heads, E width of a head, B rows on chip.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertkit.model.kernels.attention import LONGEST, block_rows
from bertkit.model.kernels.bulk import copies_in_bulk, in_tiles

HEADS = 4  # of one program
WIDTH = 64  # of a head, the only one that was measured
LEAST_PROGRAMS = 512  # with fewer, cores are idle while others go through their heads
LAUNCH = {"num_warps": 4}


@triton.jit
def bulk_attention_kernel(
    qkv, bias, out, cu_seqlens, scale, H: tl.constexpr, E: tl.constexpr, B: tl.constexpr, HEADS: tl.constexpr
):
    """A program has one sequence and some heads."""
    first = tl.program_id(0) % (H // HEADS) * HEADS
    sequence = tl.program_id(0) // (H // HEADS)
    start = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - start
    if length > 0:
        inside = tl.arange(0, B) < length
        row, column = (start + tl.arange(0, B)).to(tl.int64), tl.arange(0, E)
        for head in tl.range(first, first + HEADS, num_stages=2):
            query = qkv.load([start, head * E]).to(tl.float32) + tl.load(bias + head * E + column)[None, :]
            key = qkv.load([start, (H + head) * E])
            value = qkv.load([start, (2 * H + head) * E])
            query = (query * (scale * 1.4426950408889634)).to(key.dtype)  # for exponentials in base two
            scores = tl.where(inside[None, :], tl.dot(query, tl.trans(key)), float("-inf"))
            weights = tl.exp2(scores - tl.max(scores, 1)[:, None])
            mixed = tl.dot(weights.to(value.dtype), value) * (1.0 / tl.sum(weights, 1))[:, None]
            mixed += tl.load(bias + (2 * H + head) * E + column)[None, :]
            places = out + row[:, None] * (H * E) + head * E + column[None, :]
            tl.store(places, mixed.to(out.dtype.element_ty), mask=inside[:, None])


def takes_bulk_attention(qkv_T3HE: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> bool:
    """Whether this is a batch for which it is faster."""
    _, _, heads, width = qkv_T3HE.shape
    programs = (cu_seqlens.shape[0] - 1) * heads // HEADS
    fits = qkv_T3HE.dtype == torch.bfloat16 and width == WIDTH and heads % HEADS == 0
    return fits and block_rows(max_seqlen) == LONGEST and programs >= LEAST_PROGRAMS and copies_in_bulk(qkv_T3HE.device)


def bulk_attention_forward(qkv_T3HE: Tensor, bias: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
    """Mix values within each sequence: [T, H, E]."""
    num_tokens, _, heads, width = qkv_T3HE.shape
    out = torch.empty(num_tokens, heads, width, dtype=qkv_T3HE.dtype, device=qkv_T3HE.device)
    block = block_rows(max_seqlen)
    grid = ((cu_seqlens.shape[0] - 1) * heads // HEADS,)
    tiles = in_tiles(qkv_T3HE.flatten(1), block, width)
    bulk_attention_kernel[grid](tiles, bias, out, cu_seqlens, width**-0.5, heads, width, block, HEADS, **LAUNCH)
    return out
