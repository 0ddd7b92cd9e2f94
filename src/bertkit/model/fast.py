"""The encoder and the pre-training heads on one GPU by hand-written gradients: bf16 products, our kernels between.

The plain twin is encoder.py with bert.py; numbers agree within bf16. A product's bias and residual are added by the
kernel that reads it, and weight gradients leave the products in float32. With `eight`, most forward products and
input gradients take rows in eight bits. Dropout is not done here.
Dimensions: T tokens, D hidden, H heads, E = D / H, I intermediate, R rows asked for, M masked, V vocabulary.
"""

from typing import Any, cast

import torch
from torch import Tensor

from bertkit.model.bert import BertModel
from bertkit.model.encoder import Layer
from bertkit.model.kernels.attention import LONGEST, attention_backward, attention_forward
from bertkit.model.kernels.cross_entropy import cross_entropy_
from bertkit.model.kernels.gelu import gelu_backward_, gelu_forward
from bertkit.model.kernels.layer_norm import norm_backward, norm_forward
from bertkit.model.kernels.long_attention import long_attention_backward, long_attention_forward
from bertkit.model.kernels.rows8 import Rows8, add_product8_, narrow_and_sum, product8
from bertkit.model.narrow_weights import MULTIPLE, LayerWeights, NarrowWeights
from bertkit.model.packed import PackedBatch


def weight_gradient(d_out: Tensor, inputs: Tensor) -> Tensor:
    """d_out.T @ inputs, added up and left in float32."""
    if d_out.is_cuda:
        return torch.mm(d_out.t(), inputs, out_dtype=torch.float32)
    return d_out.t().float() @ inputs.float()


def place_table(segment: Tensor, position: Tensor) -> Tensor:
    """Segment + position of all pairs of them in float32, those of one segment side by side."""
    return (segment.float()[:, None] + position.float()).flatten(0, 1)


def name_rows(batch: PackedBatch, num_positions: int) -> tuple[Tensor, Tensor]:
    """Each token's row of the vocabulary's table, and of `place_table`."""
    return batch.token_ids, batch.segment_ids * num_positions + batch.position_ids


class FastEmbeddings(torch.autograd.Function):
    """Token + segment + position, then LayerNorm."""

    @staticmethod
    def forward(ctx: Any, batch: PackedBatch, table: Tensor, epsilon: float, eight: bool, *masters: Tensor) -> Any:
        token, segment, position, weight, shift = masters
        places, ids = place_table(segment, position), name_rows(batch, position.shape[0])
        no_bias = torch.zeros_like(weight)
        out, means, deviations, rows8 = norm_forward(
            table, places, no_bias, weight, shift, epsilon, ids=ids, eight=eight
        )
        ctx.save_for_backward(
            table, places, no_bias, weight, means, deviations, *ids, batch.segment_ids, batch.position_ids
        )
        ctx.sizes = (token.shape[0], segment.shape[0], position.shape[0], batch.reach or batch.max_seqlen)
        return _with_rows8(ctx, out, rows8)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, *_: Any) -> Any:
        *known, token_ids, place_ids, segment_ids, position_ids = ctx.saved_tensors
        vocabulary, num_segments, num_positions, reach = ctx.sizes
        grads = norm_backward(d_out, *known, ids=(token_ids, place_ids))
        d_token = torch.ops.aten.embedding_dense_backward(grads.summed, token_ids, vocabulary, -1, False).float()
        # Thousands of tokens meet in one row of these two tables: a product with their indicators adds them up.
        marks = torch.zeros(len(token_ids), reach + MULTIPLE, dtype=d_out.dtype, device=d_out.device)
        marks.scatter_(1, torch.stack([position_ids, reach + segment_ids], 1), 1)
        both = weight_gradient(marks, grads.summed)
        d_position = torch.zeros(num_positions, both.shape[1], device=both.device)
        d_position[:reach] = both[:reach]
        d_segment = both[reach : reach + num_segments]
        return None, None, None, None, d_token, d_segment, d_position, grads.weight, grads.shift


class FastLayer(torch.autograd.Function):
    """One layer; with rows, only those go on after attention."""

    @staticmethod
    def forward(
        ctx: Any,
        x_TD: Tensor,
        x8: Rows8 | None,
        batch: PackedBatch,
        rows: Tensor | None,
        heads: int,
        epsilon: float,
        weights: LayerWeights,
        *masters: Tensor,
    ) -> Any:
        _, b_qkv, _, b_out, g_1, s_1, _, b_up, _, b_down, g_2, s_2 = masters
        eight = x8 is not None
        is_long = batch.max_seqlen > LONGEST
        qkv = _product(x_TD, weights.qkv, x8, weights.qkv8, b_qkv if is_long else None)
        qkv = qkv.view(x_TD.shape[0], 3, heads, -1)
        if is_long:
            mixed, normalisers = long_attention_forward(qkv, batch.cu_seqlens, batch.max_seqlen)
        else:
            mixed, normalisers = attention_forward(qkv, b_qkv, batch.cu_seqlens, batch.max_seqlen), None
        flat = mixed.flatten(1)
        residual, chosen = (x_TD, flat) if rows is None else (x_TD[rows], flat[rows])
        product_1 = chosen @ weights.out.t()
        x_1, mean_1, dev_1, x8_1 = norm_forward(product_1, residual, b_out, g_1, s_1, epsilon, eight=eight)
        up = _product(x_1, weights.up, x8_1, weights.up8)
        active, active8 = gelu_forward(up, b_up, eight=eight)
        product_2 = _product(active, weights.down, active8, weights.down8)
        x_2, mean_2, dev_2, x8_2 = norm_forward(product_2, x_1, b_down, g_2, s_2, epsilon, eight=eight)
        ctx.save_for_backward(
            x_TD, qkv, mixed, normalisers, residual, chosen, product_1, x_1, up, active, product_2,
            mean_1, dev_1, mean_2, dev_2, batch.cu_seqlens, b_qkv, b_out, g_1, b_up, b_down, g_2,
        )  # fmt: skip
        ctx.weights, ctx.rows, ctx.max_seqlen, ctx.eight = weights, rows, batch.max_seqlen, eight
        return _with_rows8(ctx, x_2, x8_2)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, *_: Any) -> Any:
        (
            x, qkv, mixed, normalisers, residual, chosen, product_1, x_1, up, active, product_2,
            mean_1, dev_1, mean_2, dev_2, cu_seqlens, b_qkv, b_out, g_1, b_up, b_down, g_2,
        ) = ctx.saved_tensors  # fmt: skip
        w, eight = ctx.weights, ctx.eight
        two = norm_backward(d_out, product_2, x_1, b_down, g_2, mean_2, dev_2, eight=eight)
        d_wdown = weight_gradient(two.summed, active)
        d_up = _input_gradient(two.summed, w.down, two.rows8, w.down8_t)
        scales = two.rows8.scales if two.rows8 else None
        d_bup, d_up8 = gelu_backward_(d_up, up, b_up, scales, w.down_gain)
        d_wup = weight_gradient(d_up, x_1)
        d_x1 = _input_gradient(d_up, w.up, d_up8, w.up8_t)
        stats = (product_1, residual, b_out, g_1, mean_1, dev_1)
        one = norm_backward(d_x1, *stats, d_more_TD=two.summed, eight=eight)
        d_wout = weight_gradient(one.summed, chosen)
        d_mixed, d_x = _input_gradient(one.summed, w.out, one.rows8, w.out8_t), one.summed
        if ctx.rows is not None:
            d_mixed, d_x = (torch.zeros_like(x).index_add_(0, ctx.rows, part) for part in (d_mixed, d_x))
        d_qkv8 = None
        if normalisers is None:
            d_qkv, d_bqkv = attention_backward(d_mixed, qkv, b_qkv, cu_seqlens, ctx.max_seqlen)
            d_qkv = d_qkv.flatten(1)
        else:
            d_qkv = long_attention_backward(d_mixed, qkv, mixed, normalisers, cu_seqlens, ctx.max_seqlen).flatten(1)
            if eight:  # the sums need a pass over it, which makes eight bits of it too
                d_qkv8, d_bqkv = narrow_and_sum(d_qkv)
            else:
                d_bqkv = d_qkv.sum(0, dtype=torch.float32)
        d_wqkv = weight_gradient(d_qkv, x)
        # Onto what came through the residual.
        d_x = d_x.addmm_(d_qkv, w.qkv) if d_qkv8 is None else add_product8_(d_x, d_qkv8, w.qkv8_t)
        return (
            d_x, None, None, None, None, None, None, d_wqkv, d_bqkv, d_wout, one.bias, one.weight, one.shift,
            d_wup, d_bup, d_wdown, two.bias, two.weight, two.shift,
        )  # fmt: skip


def _product(x: Tensor, weight: Tensor, x8: Rows8 | None, weight8: Rows8 | None, bias: Tensor | None = None) -> Tensor:
    if x8 is not None and weight8 is not None:
        return product8(x8, weight8, bias)
    return x @ weight.t() if bias is None else torch.addmm(bias.to(x.dtype), x, weight.t())


def _input_gradient(d_out: Tensor, weight: Tensor, d_out8: Rows8 | None, weight8_t: Rows8 | None) -> Tensor:
    return d_out @ weight if d_out8 is None or weight8_t is None else product8(d_out8, weight8_t)


def _with_rows8(ctx: Any, out: Tensor, rows8: Rows8 | None) -> Any:
    if rows8 is None:
        return out, None
    ctx.mark_non_differentiable(*rows8)
    return out, rows8


class FastMaskedTokens(torch.autograd.Function):
    """The MLM head and its loss: (scaled summed loss, summed loss, hits); the logits never leave this function."""

    @staticmethod
    def forward(
        ctx: Any,
        x_MD: Tensor,
        targets: Tensor,
        scale: Tensor,
        epsilon: float,
        transform: Tensor,
        table: Tensor,
        *masters: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        _, b_transform, weight, shift, _, bias = masters
        product = x_MD @ transform.t()
        active = gelu_forward(product, b_transform)[0]
        no_bias = torch.zeros_like(weight)
        normal, means, deviations = norm_forward(active, None, no_bias, weight, shift, epsilon)[:3]
        logits = normal @ table.t()
        losses, hits = cross_entropy_(logits, bias, targets, scale)
        ctx.save_for_backward(
            x_MD, product, active, normal, logits, means, deviations, no_bias, transform, table, b_transform, weight
        )
        ctx.vocabulary = bias.shape[0]
        loss_sum = losses.sum()
        return loss_sum * scale, loss_sum, hits.sum()

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor, *_: Any) -> Any:
        x, product, active, normal, d_logits, means, deviations, no_bias, transform, table, b_transform, weight = (
            ctx.saved_tensors
        )
        factor = d_loss.to(normal.dtype)
        d_table = weight_gradient(d_logits, normal * factor)[: ctx.vocabulary]
        d_bias = d_logits.sum(0, dtype=torch.float32)[: ctx.vocabulary] * d_loss
        d_normal = (d_logits @ table) * factor
        grads = norm_backward(d_normal, active, None, no_bias, weight, means, deviations)
        d_btransform = gelu_backward_(grads.summed, product, b_transform)[0]
        d_transform = weight_gradient(grads.summed, x)
        d_x = grads.summed @ transform
        inputs = (d_x, None, None, None, None, None)
        return (*inputs, d_transform, d_btransform, grads.weight, grads.shift, d_table, d_bias)


def fast_encode(model: BertModel, narrow: NarrowWeights, batch: PackedBatch, rows: Tensor, *, eight: bool) -> Tensor:
    """The last layer's vectors of these rows: [R, D]."""
    config, parts = model.config, model.encoder.embeddings
    tables = (parts.token.weight, parts.segment.weight, parts.position.weight, parts.norm.weight, parts.norm.bias)
    x, x8 = _apply(FastEmbeddings, batch, narrow.table, config.layer_norm_eps, eight, *tables)
    last = config.num_layers - 1
    for index, layer in enumerate(cast(list[Layer], model.encoder.layers)):
        modules = (layer.qkv, layer.attention_output, layer.attention_norm, layer.up, layer.down, layer.output_norm)
        masters = [p for module in modules for p in (module.weight, module.bias)]
        how = (batch, rows if index == last else None, config.num_heads, config.layer_norm_eps, narrow.layer(index))
        x, x8 = _apply(FastLayer, x, x8, *how, *masters)
    hidden: Tensor = x
    return hidden


def fast_masked_loss(
    model: BertModel, narrow: NarrowWeights, hidden_MD: Tensor, targets: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The MLM loss times `scale`, and, for the record, its plain sum and the number of right answers."""
    head, token = model.mlm, model.encoder.embeddings.token.weight
    assert head is not None
    masters = (head.transform.weight, head.transform.bias, head.norm.weight, head.norm.bias, token, head.bias)
    how = (targets, scale, model.config.layer_norm_eps, narrow.transform, narrow.table)
    losses: tuple[Tensor, Tensor, Tensor] = _apply(FastMaskedTokens, hidden_MD, *how, *masters)
    return losses


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    return function.apply(*arguments)
