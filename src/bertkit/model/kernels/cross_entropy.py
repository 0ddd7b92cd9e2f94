"""Cross-entropy over a vocabulary that writes its gradient over the logits.

In: logits as the product left them, [M, V or more: the rest is padding and gets no gradient], the decoder's bias, targets (IGNORED where a slot is unused) and one scale
on the device. Out: each row's loss and whether its target had the highest score; the logits now hold
scale * (softmax - target), the gradient of scale * the summed loss.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def cross_entropy_forward_kernel(
    logits, bias, targets, scale, losses, hits, V: tl.constexpr, stride: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    used = target >= 0
    highest = float("-inf")
    total = 0.0
    for first in range(0, V, BLOCK):
        column = first + tl.arange(0, BLOCK)
        score = tl.load(logits + row * stride + column, mask=column < V, other=float("-inf")).to(tl.float32)
        score += tl.load(bias + column, mask=column < V, other=0.0)
        new = tl.maximum(highest, tl.max(score, 0))
        total = total * tl.exp(highest - new) + tl.sum(tl.exp(score - new), 0)
        highest = new
    wanted = tl.load(logits + row * stride + target, mask=used, other=0.0).to(tl.float32)
    wanted += tl.load(bias + target, mask=used, other=0.0)
    normaliser = highest + tl.log(total)
    tl.store(losses + row, tl.where(used, normaliser - wanted, 0.0))
    tl.store(hits + row, tl.where(used & (wanted >= highest), 1.0, 0.0))
    factor = tl.where(used, tl.load(scale), 0.0)
    for first in range(0, stride, BLOCK):
        column = first + tl.arange(0, BLOCK)
        score = tl.load(logits + row * stride + column, mask=column < V, other=float("-inf")).to(tl.float32)
        score += tl.load(bias + column, mask=column < V, other=0.0)
        grad = factor * (tl.exp(score - normaliser) - tl.where(column == target, 1.0, 0.0))
        tl.store(logits + row * stride + column, grad.to(logits.dtype.element_ty), mask=column < stride)


def cross_entropy_(logits_MV: Tensor, bias: Tensor, targets: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Losses and hits of each row, [M] in float32; the logits become their own gradient."""
    losses = torch.empty(logits_MV.shape[0], dtype=torch.float32, device=logits_MV.device)
    hits = torch.empty_like(losses)
    vocabulary = bias.shape[0]
    cross_entropy_forward_kernel[(logits_MV.shape[0],)](
        logits_MV, bias, targets, scale, losses, hits, vocabulary, logits_MV.stride(0), BLOCK, num_warps=4
    )
    return losses, hits
