"""Attention of packed sequences of any length, keys and queries a block at a time, forward and backward.

In: query, key and value with their biases already added, [T, 3, H, E]. Out: the mixed values, [T, H, E], and each
row's normaliser; backward, the packed gradient. Blocks of queries and blocks of keys have programs of their own, so no
two write to one place. Dimensions: T tokens, N sequences, H heads, E width of a head.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

OWN, OTHER = 128, 64  # rows that a program owns, and rows it looks at at a time
OWN_KEYS = 64  # of the keys' kernel: three such programs fit on a core, if each has at most so many registers
MOST_REGISTERS = 168
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _load_block(tensor, row, inside, columns, stride: tl.constexpr):
    return tl.load(tensor + row[:, None] * stride + columns[None, :], mask=inside[:, None], other=0.0)


@triton.jit
def _own_rows(cu_seqlens, H: tl.constexpr, OWN: tl.constexpr):
    """This program's head, its sequence's start and length, and the places in it that it owns."""
    head, sequence = tl.program_id(0) % H, tl.program_id(0) // H
    start = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - start
    return head, start, length, tl.program_id(1) * OWN + tl.arange(0, OWN)


@triton.jit
def _in_three(number, column, dtype: tl.constexpr):
    """Float32 numbers as three narrow ones that add up to them, in columns 0 to 2; the others are zero."""
    one = number.to(dtype).to(tl.float32)
    two = (number - one).to(dtype).to(tl.float32)
    rest = tl.where(column == 1, two[:, None], tl.where(column == 2, (number - one - two)[:, None], 0.0))
    return tl.where(column == 0, one[:, None], rest)


@triton.jit
def long_forward_kernel(
    qkv, out, normalisers, cu_seqlens, scale, num_tokens,
    H: tl.constexpr, E: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr,
):  # fmt: skip
    head, start, length, place = _own_rows(cu_seqlens, H, OWN)
    if tl.program_id(1) * OWN < length:
        inside = place < length
        row = (start + place).to(tl.int64)
        columns = head * E + tl.arange(0, E)
        query = _load_block(qkv, row, inside, columns, 3 * H * E)
        highest = tl.full([OWN], float("-inf"), tl.float32)
        total = tl.zeros([OWN], tl.float32)
        mixed = tl.zeros([OWN, E], tl.float32)
        for first in range(0, length, OTHER):
            there = first + tl.arange(0, OTHER) < length
            row_k = (start + first + tl.arange(0, OTHER)).to(tl.int64)
            key = _load_block(qkv, row_k, there, columns + H * E, 3 * H * E)
            value = _load_block(qkv, row_k, there, columns + 2 * H * E, 3 * H * E)
            scores = tl.dot(query, tl.trans(key)) * (scale * LOG2_E)
            scores = tl.where(there[None, :], scores, float("-inf"))
            new = tl.maximum(highest, tl.max(scores, 1))
            weights = tl.exp2(scores - new[:, None])
            shrink = tl.exp2(highest - new)
            total = total * shrink + tl.sum(weights, 1)
            mixed = tl.dot(weights.to(value.dtype), value, mixed * shrink[:, None])
            highest = new
        places = out + row[:, None] * (H * E) + columns[None, :]
        tl.store(places, (mixed / total[:, None]).to(out.dtype.element_ty), mask=inside[:, None])
        tl.store(normalisers + head * num_tokens + row, highest + tl.log2(total), mask=inside)


@triton.jit
def long_query_kernel(
    qkv, out, d_out, normalisers, offsets, d_qkv, cu_seqlens, scale, num_tokens,
    H: tl.constexpr, E: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr,
):  # fmt: skip
    """Gradients of the queries; also the two numbers of each row that the keys' kernel subtracts."""
    head, start, length, place = _own_rows(cu_seqlens, H, OWN)
    if tl.program_id(1) * OWN < length:
        inside = place < length
        row = (start + place).to(tl.int64)
        columns = head * E + tl.arange(0, E)
        query = _load_block(qkv, row, inside, columns, 3 * H * E)
        d_mixed = _load_block(d_out, row, inside, columns, H * E)
        mixed = _load_block(out, row, inside, columns, H * E)
        shared = tl.sum(d_mixed.to(tl.float32) * mixed.to(tl.float32), 1)
        normaliser = tl.load(normalisers + head * num_tokens + row, mask=inside, other=0.0)
        column = tl.arange(0, 16)[None, :]
        both = _in_three(-normaliser / (scale * LOG2_E), column, query.dtype)
        both += _in_three(-shared, column - 8, query.dtype)
        tl.store(offsets + row[:, None] * (H * 16) + head * 16 + column, both.to(query.dtype), mask=inside[:, None])
        d_query = tl.zeros([OWN, E], tl.float32)
        for first in range(0, length, OTHER):
            there = first + tl.arange(0, OTHER) < length
            row_k = (start + first + tl.arange(0, OTHER)).to(tl.int64)
            key = _load_block(qkv, row_k, there, columns + H * E, 3 * H * E)
            value = _load_block(qkv, row_k, there, columns + 2 * H * E, 3 * H * E)
            scores = tl.dot(query, tl.trans(key)) * (scale * LOG2_E)
            # No weight exceeds one. Keys beyond the sequence are zero, as are their scores, which may lie so far above
            # all others that their weights would be infinite, and infinity times zero is not a number.
            weights = tl.exp2(tl.minimum(scores - normaliser[:, None], 0.0))
            d_weights = tl.dot(d_mixed, tl.trans(value)) - shared[:, None]
            d_query = tl.dot((weights * d_weights).to(key.dtype), key, d_query)
        places = d_qkv + row[:, None] * (3 * H * E) + columns[None, :]
        tl.store(places, (d_query * scale).to(d_qkv.dtype.element_ty), mask=inside[:, None])


@triton.jit
def long_key_kernel(
    qkv, d_out, offsets, d_qkv, cu_seqlens, scale,
    H: tl.constexpr, E: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr,
):  # fmt: skip
    """Gradients of keys and values; everything transposed, a column a query.

    A number a column would take 64 registers of every thread; products with ones subtract it without any. Queries
    beyond the sequence have weights here, but are zero, as are their gradients.
    """
    head, start, length, place = _own_rows(cu_seqlens, H, OWN)
    if tl.program_id(1) * OWN < length:
        inside = place < length
        row = (start + place).to(tl.int64)
        columns = head * E + tl.arange(0, E)
        key = _load_block(qkv, row, inside, columns + H * E, 3 * H * E)
        value = _load_block(qkv, row, inside, columns + 2 * H * E, 3 * H * E)
        column = tl.arange(0, 16)[None, :] + tl.zeros([OWN, 16], tl.int32)
        first_half, second_half = (column < 8).to(key.dtype), (column >= 8).to(key.dtype)
        d_key = tl.zeros([OWN, E], tl.float32)
        d_value = tl.zeros([OWN, E], tl.float32)
        for first in range(0, length, OTHER):
            there = first + tl.arange(0, OTHER) < length
            row_q = (start + first + tl.arange(0, OTHER)).to(tl.int64)
            query = _load_block(qkv, row_q, there, columns, 3 * H * E)
            d_mixed = _load_block(d_out, row_q, there, columns, H * E)
            both = tl.trans(_load_block(offsets, row_q, there, head * 16 + tl.arange(0, 16), H * 16))
            scores = tl.dot(key, tl.trans(query), tl.dot(first_half, both))
            weights = tl.exp2(scores * (scale * LOG2_E))
            d_weights = tl.dot(value, tl.trans(d_mixed), tl.dot(second_half, both))
            d_value = tl.dot(weights.to(d_mixed.dtype), d_mixed, d_value)
            d_key = tl.dot((weights * d_weights).to(query.dtype), query, d_key)
        places = d_qkv + row[:, None] * (3 * H * E) + columns[None, :]
        tl.store(places + H * E, (d_key * scale).to(d_qkv.dtype.element_ty), mask=inside[:, None])
        tl.store(places + 2 * H * E, d_value.to(d_qkv.dtype.element_ty), mask=inside[:, None])


def long_attention_forward(qkv_T3HE: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> tuple[Tensor, Tensor]:
    """Mix values within each sequence, [T, H, E], and the rows' normalisers, [H, T] in float32."""
    num_tokens, _, heads, width = qkv_T3HE.shape
    out = torch.empty(num_tokens, heads, width, dtype=qkv_T3HE.dtype, device=qkv_T3HE.device)
    normalisers = torch.empty(heads, num_tokens, dtype=torch.float32, device=qkv_T3HE.device)
    tensors = (qkv_T3HE, out, normalisers, cu_seqlens, width**-0.5, num_tokens)
    grid = _grid(cu_seqlens, max_seqlen, heads, OWN)
    long_forward_kernel[grid](*tensors, heads, width, OWN, OTHER, num_warps=8, num_stages=3)
    return out, normalisers


def long_attention_backward(
    d_out_THE: Tensor, qkv_T3HE: Tensor, out_THE: Tensor, normalisers: Tensor, cu_seqlens: Tensor, max_seqlen: int
) -> Tensor:
    """The packed gradient, [T, 3, H, E]."""
    num_tokens, _, heads, width = qkv_T3HE.shape
    d_qkv, offsets = torch.empty_like(qkv_T3HE), qkv_T3HE.new_empty(num_tokens, heads, 16)
    scale, sizes = width**-0.5, (heads, width)
    tensors = (qkv_T3HE, out_THE, d_out_THE, normalisers, offsets, d_qkv, cu_seqlens, scale, num_tokens)
    grid = _grid(cu_seqlens, max_seqlen, heads, OWN)
    stages = 3 if width <= 64 else 2  # blocks on their way at a time: wide heads have to fit into 99 KiB on chip
    long_query_kernel[grid](*tensors, *sizes, OWN, OTHER, num_warps=8, num_stages=stages)
    fewer = (qkv_T3HE, d_out_THE, offsets, d_qkv, cu_seqlens, scale)
    grid = _grid(cu_seqlens, max_seqlen, heads, OWN_KEYS)
    long_key_kernel[grid](*fewer, *sizes, OWN_KEYS, OTHER, num_warps=4, num_stages=stages, maxnreg=MOST_REGISTERS)
    return d_qkv


def _grid(cu_seqlens: Tensor, max_seqlen: int, heads: int, own: int) -> tuple[int, int]:
    return (cu_seqlens.shape[0] - 1) * heads, triton.cdiv(max_seqlen, own)
