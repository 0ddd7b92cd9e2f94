"""The encoder's forward pass alone by our kernels, for large batches on one GPU in half precision.

The plain twin is encoder.py. Weights are taken as they are; with `eight_bits` three products of a layer take rows in eight
bits, from copies made once: qkv and up in int8 with a scale a token, down in e4m3, since no program has a whole row of
GELU's result on chip; queries and keys would not stand e4m3 (docs/log.md). Channels that are always large would leave the
others few steps of int8, so they may be divided by a factor, and their weights multiplied. The choice between the two ways is
`takes_fast_inference`, and the first batch of a kind is a trial (trial.py). GELU is the product's own epilogue, in its tanh
form: at most 0.0005 from the erf form, where bf16 rounds 1 by 0.004.
"""

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.model.packed import PackedBatch
from bertkit.model.trial import run_or_none

if TYPE_CHECKING:
    from bertkit.model.encoder import Encoder, Layer
    from bertkit.model.kernels.layer_norm import Normed
    from bertkit.model.kernels.products import Matrix8
    from bertkit.model.kernels.rows8 import Rows8

LEAST_TOKENS = 4096  # below this, launching our kernels takes longer than they save
HEAD_SIZES = (16, 32, 64, 128)
CAPABILITY, CAPABILITY8 = (8, 0), (8, 9)


class Eight(NamedTuple):
    """A layer's matrices in eight bits."""

    qkv: "Rows8"
    up: "Rows8"
    down: "Matrix8"
    before_qkv: Tensor  # [D]: what the inputs of these two products are multiplied by
    before_up: Tensor


def takes_fast_inference(encoder: "Encoder", batch: PackedBatch) -> bool:
    """Whether this call is one that our kernels serve."""
    if encoder.is_causal or torch.is_grad_enabled() or encoder.training or batch.num_tokens < LEAST_TOKENS:
        return False
    return encoder.embeddings.token.weight.device == batch.token_ids.device and _has_kernels(encoder, CAPABILITY)


def can_use_eight_bits(encoder: "Encoder") -> bool:
    """Whether `use_eight_bits` is for this encoder, where it is."""
    wide = cast("Layer", encoder.layers[0]).up.out_features
    is_bf16, fits = encoder.embeddings.token.weight.dtype == torch.bfloat16, wide % 16 == 0  # as such products want it
    return is_bf16 and fits and not encoder.is_causal and _has_kernels(encoder, CAPABILITY8)


def _has_kernels(encoder: "Encoder", capability: tuple[int, int]) -> bool:
    weight = encoder.embeddings.token.weight
    if not weight.is_cuda or weight.dtype not in (torch.bfloat16, torch.float16) or torch.version.hip is not None:
        return False
    layer = cast("Layer", encoder.layers[0])
    is_known = layer.activation is F.gelu and weight.shape[1] // layer.num_heads in HEAD_SIZES
    can = torch.cuda.get_device_capability(weight.device) >= capability
    if not is_known or not can or importlib.util.find_spec("triton") is None:
        return False
    from bertkit.model.kernels.products import is_there

    return is_there()


def try_fast_forward(encoder: "Encoder", batch: PackedBatch, rows: Tensor | None = None) -> Tensor | None:
    """As `fast_forward`, or None where our kernels turn out not to run."""
    weight, layer = encoder.embeddings.token.weight, cast("Layer", encoder.layers[0])
    sizes = (weight.shape[1], layer.num_heads, layer.up.out_features, (batch.max_seqlen - 1).bit_length())
    key = ("encoder", weight.device, weight.dtype, sizes, encoder.eights is not None)
    return run_or_none(key, lambda: fast_forward(encoder, batch, rows, encoder.eights))


def fast_forward(
    encoder: "Encoder", batch: PackedBatch, rows: Tensor | None = None, eights: list[Eight] | None = None
) -> Tensor:
    """The last layer's vectors, [T, D], or [R, D] for the rows asked for."""
    from bertkit.model.fast import name_rows, place_table
    from bertkit.model.kernels.layer_norm import norm_forward

    parts, norm = encoder.embeddings, encoder.embeddings.norm
    with torch.cuda.device_of(batch.token_ids):
        places = place_table(parts.segment.weight, parts.position.weight)
        tables = (parts.token.weight, places, torch.zeros_like(norm.weight))
        ids = name_rows(batch, parts.position.num_embeddings)
        shrinks = [eight.before_qkv for eight in eights] if eights else [None] * len(encoder.layers)
        x = norm_forward(*tables, norm.weight, norm.bias, norm.eps, ids=ids, shrink=shrinks[0])
        last = len(encoder.layers) - 1
        for index, layer in enumerate(cast("list[Layer]", encoder.layers)):
            chosen, shrink = (rows, None) if index == last else (None, shrinks[index + 1])
            x = _layer(layer, x, batch, chosen, eights[index] if eights else None, shrink)
    return x.out


def _layer(
    layer: "Layer", x: "Normed", batch: PackedBatch, rows: Tensor | None, eight: Eight | None, shrink: Tensor | None
) -> "Normed":
    """`shrink` is the next layer's."""
    from bertkit.model.kernels.layer_norm import norm_forward
    from bertkit.model.kernels.products import add_product8_, product
    from bertkit.model.kernels.tiled_products import gelu_product, gelu_product_int8

    mixed, residual = _attend(layer, x, batch, eight), x.out
    if rows is not None:
        mixed, residual = mixed[rows], residual[rows]
    norm, out = layer.attention_norm, layer.attention_output
    made, before_up = product(mixed, out.weight), eight.before_up if eight else None
    x = norm_forward(made, residual, out.bias, norm.weight, norm.bias, norm.eps, shrink=before_up)
    norm = layer.output_norm
    if eight is None or x.rows8 is None:
        active = gelu_product(x.out, layer.up.weight, layer.up.bias)
        return norm_forward(
            product(active, layer.down.weight), x.out, layer.down.bias, norm.weight, norm.bias, norm.eps
        )
    active = gelu_product_int8(x.rows8, eight.up, layer.up.bias)
    made = add_product8_(active, eight.down, x.out)
    return norm_forward(made, None, layer.down.bias, norm.weight, norm.bias, norm.eps, shrink=shrink)


def _attend(layer: "Layer", x: "Normed", batch: PackedBatch, eight: Eight | None) -> Tensor:
    """What every token gathers from the others, [T, D]."""
    from bertkit.model.kernels.attention import LONGEST, attention_forward
    from bertkit.model.kernels.bulk_attention import bulk_attention_forward, takes_bulk_attention
    from bertkit.model.kernels.long_attention import long_attention_forward
    from bertkit.model.kernels.products import product
    from bertkit.model.kernels.tiled_products import product_int8

    weight, bias = layer.qkv.weight, layer.qkv.bias
    is_long, shape = batch.max_seqlen > LONGEST, (x.out.shape[0], 3, layer.num_heads, -1)
    if eight is not None and x.rows8 is not None:
        qkv = product_int8(x.rows8, eight.qkv, bias if is_long else None).view(shape)
    else:
        qkv = (F.linear(x.out, weight, bias) if is_long else product(x.out, weight)).view(shape)
    if is_long:
        return long_attention_forward(qkv, batch.cu_seqlens, batch.max_seqlen)[0].flatten(1)
    in_bulk = takes_bulk_attention(qkv, batch.cu_seqlens, batch.max_seqlen)
    attend = bulk_attention_forward if in_bulk else attention_forward
    return attend(qkv, bias, batch.cu_seqlens, batch.max_seqlen).flatten(1)


def narrow_layers(encoder: "Encoder", factors: Mapping[str, Tensor]) -> list[Eight]:
    """Every layer's matrices in eight bits; `factors` of the input channels of "0.qkv", "0.up" and so on, where there are any."""
    from bertkit.model.kernels.products import narrow_matrix
    from bertkit.model.kernels.rows8 import to_int8

    def smooth(weight: Tensor, key: str) -> "tuple[Rows8, Tensor]":
        factor = factors.get(key, torch.ones(weight.shape[1])).to(weight.device, torch.float32)
        return to_int8(weight.detach().float() * factor), 1.0 / factor

    made = []
    for number, layer in enumerate(cast("list[Layer]", encoder.layers)):
        (qkv, before_qkv), (up, before_up) = (
            smooth(module.weight, f"{number}.{kind}") for kind, module in (("qkv", layer.qkv), ("up", layer.up))
        )
        made.append(Eight(qkv, up, narrow_matrix(layer.down.weight), before_qkv, before_up))
    return made
