"""The encoder and the pre-training heads on one GPU by hand-written gradients: bf16 products, our kernels between.

The plain twin is encoder.py with bert.py; numbers agree within bf16. A product's bias is added by the kernel that
reads it, its residual by the product itself, and weight gradients leave the products in float32. Dropout is not done
here: with dropout, or where CUDA and bf16 are not at hand, the plain way is taken (`is_fast`).
Dimensions: T tokens, D hidden, H heads, E = D / H, I intermediate, R rows asked for, M masked, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from bertkit.model.kernels.attention import attention_backward, attention_forward
from bertkit.model.kernels.cross_entropy import cross_entropy_
from bertkit.model.kernels.embedding import embed, indicator, token_gradient
from bertkit.model.kernels.gelu import gelu_backward_, gelu_forward
from bertkit.model.kernels.layer_norm import norm_backward, norm_forward


def weight_gradient(d_out: Tensor, inputs: Tensor) -> Tensor:
    """d_out.T @ inputs, added up and left in float32."""
    if d_out.is_cuda:
        return torch.mm(d_out.t(), inputs, out_dtype=torch.float32)
    return d_out.t().float() @ inputs.float()


class FastEmbeddings(torch.autograd.Function):
    """Token + segment + position, then LayerNorm."""

    @staticmethod
    def forward(ctx: Any, batch: Any, narrow: Tensor, epsilon: float, max_length: int, *masters: Tensor) -> Tensor:
        _, segment, position, weight, shift = masters
        summed = embed(batch.token_ids, batch.segment_ids, batch.position_ids, narrow, segment, position)
        no_bias = torch.zeros_like(weight)
        out, means, deviations = norm_forward(summed, no_bias, weight, shift, epsilon)
        ids = (batch.token_ids, batch.segment_ids, batch.position_ids)
        ctx.save_for_backward(summed, no_bias, weight, means, deviations, *ids)
        ctx.sizes = (masters[0].shape[0], segment.shape[0], position.shape[0], max_length)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Any:  # type: ignore[override]
        *norm, token_ids, segment_ids, position_ids = ctx.saved_tensors
        vocabulary, num_segments, num_positions, max_length = ctx.sizes
        d_summed, d_weight, d_shift, _ = norm_backward(d_out, *norm)
        d_token = token_gradient(d_summed, token_ids, vocabulary)
        marks = indicator(position_ids, max_length + 8, d_summed.dtype)
        marks.scatter_(1, max_length + segment_ids[:, None], 1)
        both = weight_gradient(marks, d_summed)
        d_position = torch.zeros(num_positions, both.shape[1], device=both.device)
        d_position[:max_length] = both[:max_length]
        d_segment = both[max_length : max_length + num_segments]
        return None, None, None, None, d_token, d_segment, d_position, d_weight, d_shift


class FastLayer(torch.autograd.Function):
    """One layer; with rows, only those go on after attention."""

    @staticmethod
    def forward(ctx: Any, x_TD: Tensor, batch: Any, rows: Tensor | None, heads: int, epsilon: float, narrow: Any, *masters: Tensor) -> Tensor:
        w_qkv, w_out, w_up, w_down = narrow
        _, b_qkv, _, b_out, g_1, s_1, _, b_up, _, b_down, g_2, s_2 = masters
        qkv = (x_TD @ w_qkv.t()).view(x_TD.shape[0], 3, heads, -1)
        mixed = attention_forward(qkv, b_qkv, batch.cu_seqlens, batch.max_seqlen).flatten(1)
        residual, chosen = (x_TD, mixed) if rows is None else (x_TD[rows], mixed[rows])
        sum_1 = torch.addmm(residual, chosen, w_out.t())
        x_1, *stats_1 = norm_forward(sum_1, b_out, g_1, s_1, epsilon)
        up = x_1 @ w_up.t()
        active = gelu_forward(up, b_up)
        sum_2 = torch.addmm(x_1, active, w_down.t())
        x_2, *stats_2 = norm_forward(sum_2, b_down, g_2, s_2, epsilon)
        ctx.save_for_backward(
            x_TD, qkv, chosen, sum_1, x_1, up, active, sum_2, *stats_1, *stats_2, batch.cu_seqlens,
            *narrow, b_qkv, b_out, g_1, b_up, b_down, g_2,
        )  # fmt: skip
        ctx.rows, ctx.max_seqlen = rows, batch.max_seqlen
        return x_2

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Any:  # type: ignore[override]
        x, qkv, chosen, sum_1, x_1, up, active, sum_2, mean_1, dev_1, mean_2, dev_2, cu_seqlens, *weights = (
            ctx.saved_tensors
        )
        w_qkv, w_out, w_up, w_down, b_qkv, b_out, g_1, b_up, b_down, g_2 = weights
        d_sum, d_g2, d_s2, d_bdown = norm_backward(d_out, sum_2, b_down, g_2, mean_2, dev_2)
        d_wdown = weight_gradient(d_sum, active)
        d_up = d_sum @ w_down
        d_bup = gelu_backward_(d_up, up, b_up)
        d_wup = weight_gradient(d_up, x_1)
        d_sum.addmm_(d_up, w_up)  # through both ways: the residual and the feed-forward
        d_sum, d_g1, d_s1, d_bout = norm_backward(d_sum, sum_1, b_out, g_1, mean_1, dev_1)
        d_wout = weight_gradient(d_sum, chosen)
        d_mixed = d_sum @ w_out
        if ctx.rows is not None:
            d_mixed = torch.zeros_like(x).index_add_(0, ctx.rows, d_mixed)
            d_sum = torch.zeros_like(x).index_add_(0, ctx.rows, d_sum)
        d_qkv, d_bqkv = attention_backward(d_mixed, qkv, b_qkv, cu_seqlens, ctx.max_seqlen)
        d_qkv = d_qkv.flatten(1)
        d_wqkv = weight_gradient(d_qkv, x)
        d_x = d_sum.addmm_(d_qkv, w_qkv)
        grads = (d_wqkv, d_bqkv, d_wout, d_bout, d_g1, d_s1, d_wup, d_bup, d_wdown, d_bdown, d_g2, d_s2)
        return (d_x, None, None, None, None, None, *grads)


class FastMaskedTokens(torch.autograd.Function):
    """The MLM head and its loss: (summed loss * scale, hits); the logits never leave bf16 nor this function."""

    @staticmethod
    def forward(ctx: Any, x_MD: Tensor, targets: Tensor, scale: Tensor, epsilon: float, narrow: Any, *masters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        w_transform, tokens = narrow
        _, b_transform, weight, shift, _, bias = masters
        product = x_MD @ w_transform.t()
        active = gelu_forward(product, b_transform)
        no_bias = torch.zeros_like(weight)
        normal, means, deviations = norm_forward(active, no_bias, weight, shift, epsilon)
        logits = normal @ tokens.t()
        losses, hits = cross_entropy_(logits, bias, targets, scale)
        ctx.save_for_backward(
            x_MD, product, active, normal, logits, means, deviations, no_bias, w_transform, tokens, b_transform, weight
        )
        loss_sum = losses.sum()
        return loss_sum * scale, loss_sum, hits.sum()

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor, *_: Tensor) -> Any:  # type: ignore[override]
        x, product, active, normal, d_logits, means, deviations, no_bias, w_transform, tokens, b_transform, weight = (
            ctx.saved_tensors
        )
        narrow_loss = d_loss.to(normal.dtype)
        d_tokens = weight_gradient(d_logits, normal * narrow_loss)
        d_bias = d_logits.sum(0, dtype=torch.float32) * d_loss
        d_normal = (d_logits @ tokens) * narrow_loss
        d_active, d_weight, d_shift, _ = norm_backward(d_normal, active, no_bias, weight, means, deviations)
        d_btransform = gelu_backward_(d_active, product, b_transform)
        d_wtransform = weight_gradient(d_active, x)
        d_x = d_active @ w_transform
        return d_x, None, None, None, None, d_wtransform, d_btransform, d_weight, d_shift, d_tokens, d_bias
