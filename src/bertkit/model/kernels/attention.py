"""Attention of short packed sequences: one program has a whole sequence of one head on chip.

In: query, key and value as the product left them, [T, 3, H, E], and their biases. Out: the mixed values, [T, H, E];
backward, the packed gradient and the biases' gradients. The softmax is computed again in the backward pass, so nothing
is stored in between, and no two programs write to one place, so the result is always the same.
Only queries need their bias before they are multiplied: the keys' adds the same to all scores of a query, which no
softmax sees, and the values' adds itself to every mixture of them.
Dimensions: T tokens, N sequences, H heads, E width of a head, B rows on chip (the longest sequence, rounded up).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 128
# `python -m bench.gpu_kernels --tune` measures other numbers.
FORWARD, BACKWARD = {"num_warps": 4, "maxnreg": 168}, {"num_warps": 4}


@triton.jit
def _load_part(qkv, part: tl.constexpr, row, head, inside, H: tl.constexpr, E: tl.constexpr):
    """Query (0), key (1) or value (2) of one head: [B, E]."""
    columns = part * H * E + head * E + tl.arange(0, E)
    return tl.load(qkv + row[:, None] * (3 * H * E) + columns[None, :], mask=inside[:, None], other=0.0)


@triton.jit
def _load_query(qkv, bias, row, head, inside, H: tl.constexpr, E: tl.constexpr):
    """The query with its bias."""
    query = _load_part(qkv, 0, row, head, inside, H, E)
    return (query.to(tl.float32) + tl.load(bias + head * E + tl.arange(0, E))[None, :]).to(query.dtype)


@triton.jit
def _exponentials(query, key, inside, scale):
    """Of the scores of the sequence's own tokens, at most one each, [B, B] in float32, and one by their sums, [B]."""
    scores = tl.dot(query, tl.trans(key)) * (scale * 1.4426950408889634)  # in base two
    scores = tl.where(inside[None, :], scores, float("-inf"))
    weights = tl.exp2(scores - tl.max(scores, 1)[:, None])
    return weights, 1.0 / tl.sum(weights, 1)


@triton.jit
def attention_forward_kernel(qkv, bias, out, cu_seqlens, scale, H: tl.constexpr, E: tl.constexpr, B: tl.constexpr):
    head = tl.program_id(0) % H
    sequence = tl.program_id(0) // H
    start = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - start
    inside = tl.arange(0, B) < length
    row = (start + tl.arange(0, B)).to(tl.int64)
    query = _load_query(qkv, bias, row, head, inside, H, E)
    key = _load_part(qkv, 1, row, head, inside, H, E)
    value = _load_part(qkv, 2, row, head, inside, H, E)
    weights, inverse = _exponentials(query, key, inside, scale)
    mixed = tl.dot(weights.to(value.dtype), value) * inverse[:, None]
    mixed += tl.load(bias + 2 * H * E + head * E + tl.arange(0, E))[None, :]
    places = out + row[:, None] * (H * E) + head * E + tl.arange(0, E)[None, :]
    tl.store(places, mixed.to(out.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _store_gradient(
    grad, d_qkv, d_bias, part: tl.constexpr, row, sequence, head, inside, H: tl.constexpr, E: tl.constexpr
):
    """One part of the packed gradient, and its sum over this sequence for the bias."""
    columns = part * H * E + head * E + tl.arange(0, E)
    places = d_qkv + row[:, None] * (3 * H * E) + columns[None, :]
    tl.store(places, grad.to(d_qkv.dtype.element_ty), mask=inside[:, None])
    tl.store(d_bias + sequence * (3 * H * E) + columns, tl.sum(tl.where(inside[:, None], grad, 0.0), 0))


@triton.jit
def attention_backward_kernel(
    qkv, bias, d_out, d_qkv, d_bias, cu_seqlens, scale, H: tl.constexpr, E: tl.constexpr, B: tl.constexpr
):
    head = tl.program_id(0) % H
    sequence = (tl.program_id(0) // H).to(tl.int64)
    start = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - start
    inside = tl.arange(0, B) < length
    row = (start + tl.arange(0, B)).to(tl.int64)
    query = _load_query(qkv, bias, row, head, inside, H, E)
    key = _load_part(qkv, 1, row, head, inside, H, E)
    value = _load_part(qkv, 2, row, head, inside, H, E)
    places = d_out + row[:, None] * (H * E) + head * E + tl.arange(0, E)[None, :]
    d_mixed = tl.load(places, mask=inside[:, None], other=0.0)
    # Rows beyond the sequence have no softmax of their own: zero weights keep them out of every sum.
    weights, inverse = _exponentials(query, key, inside, scale)
    weights *= tl.where(inside, inverse, 0.0)[:, None]
    d_value = tl.dot(tl.trans(weights.to(d_mixed.dtype)), d_mixed)
    _store_gradient(d_value, d_qkv, d_bias, 2, row, sequence, head, inside, H, E)
    d_weights = tl.dot(d_mixed, tl.trans(value))
    shared = tl.sum(weights * d_weights, 1)
    d_scores = (weights * (d_weights - shared[:, None]) * scale).to(query.dtype)
    _store_gradient(tl.dot(d_scores, key), d_qkv, d_bias, 0, row, sequence, head, inside, H, E)
    _store_gradient(tl.dot(tl.trans(d_scores), query), d_qkv, d_bias, 1, row, sequence, head, inside, H, E)


def attention_forward(qkv_T3HE: Tensor, bias: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
    """Mix values within each sequence: [T, H, E]."""
    num_tokens, _, heads, width = qkv_T3HE.shape
    out = torch.empty(num_tokens, heads, width, dtype=qkv_T3HE.dtype, device=qkv_T3HE.device)
    grid = ((cu_seqlens.shape[0] - 1) * heads,)
    sizes = (heads, width, block_rows(max_seqlen))
    attention_forward_kernel[grid](qkv_T3HE, bias, out, cu_seqlens, width**-0.5, *sizes, **FORWARD)
    return out


def attention_backward(
    d_out_THE: Tensor, qkv_T3HE: Tensor, bias: Tensor, cu_seqlens: Tensor, max_seqlen: int
) -> tuple[Tensor, Tensor]:
    """The packed gradient, [T, 3, H, E], and the biases', [3 * H * E] in float32."""
    _, _, heads, width = qkv_T3HE.shape
    num_sequences = cu_seqlens.shape[0] - 1
    d_qkv = torch.empty_like(qkv_T3HE)
    d_bias = torch.empty(num_sequences, 3 * heads * width, dtype=torch.float32, device=qkv_T3HE.device)
    tensors = (qkv_T3HE, bias, d_out_THE, d_qkv, d_bias, cu_seqlens)
    sizes = (heads, width, block_rows(max_seqlen))
    attention_backward_kernel[(num_sequences * heads,)](*tensors, width**-0.5, *sizes, **BACKWARD)
    return d_qkv, d_bias.sum(0)


def block_rows(max_seqlen: int) -> int:
    """Rows on chip for sequences of this length."""
    return int(max(16, triton.next_power_of_2(max_seqlen)))
