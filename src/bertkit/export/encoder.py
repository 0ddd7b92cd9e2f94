"""The encoder of section 3 of the paper as graph nodes: token ids in, one vector a token out.

Linear layers see [T, D], the tokens of all sequences one under another; attention sees [N, S, D]. Sums with the
residual are `Sum`, not `Add`: ONNX Runtime would join Add and LayerNormalization into an operator that is six times
slower on CPUs. Dimensions: N sequences, S tokens each, T = N S, D hidden, R rows asked for.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
from torch import Tensor, nn

from bertkit.export.graph import INT32, Graph
from bertkit.export.linear import Linears
from bertkit.model.bert import BertModel
from bertkit.model.encoder import Embeddings, Layer

KINDS = ("qkv", "attention_output", "up", "down")


@dataclass(frozen=True)
class Shapes:
    """Values that say how the batch is laid out."""

    flat: str  # [-1, D]
    boxed: str  # [N, S, D]


def add_encoder(graph: Graph, model: BertModel, linears: Linears, *, masked: bool, rows: str = "") -> str:
    """Vectors of all tokens, [T, D], or of the rows named by a value [R]: the last layer leaves the others out."""
    config = model.config
    ids = graph.add_input("input_ids", ["batch", "sequence"])
    mask = ""
    if masked:
        mask = graph.add("Cast", graph.add_input("attention_mask", ["batch", "sequence"]), to=INT32)
    segments = graph.add_input("token_type_ids", ["batch", "sequence"])
    width = graph.constant([config.hidden_size])
    shapes = Shapes(
        flat=graph.constant([-1, config.hidden_size]),
        boxed=graph.add("Concat", graph.add("Shape", ids), width, axis=0),
    )
    hidden = graph.add("Reshape", _embed(graph, model.encoder.embeddings, ids, segments), shapes.flat)
    layers = cast(list[Layer], list(model.encoder.layers))
    for number, layer in enumerate(layers):
        chosen = rows if number == len(layers) - 1 else ""
        hidden = _layer(graph, layer, linears, hidden, shapes, mask, chosen, number, config.activation)
    return hidden


def _embed(graph: Graph, embeddings: Embeddings, ids: str, segments: str) -> str:
    length = graph.add("Shape", ids, start=1, end=2)
    positions = graph.add("Slice", graph.constant(embeddings.position.weight), graph.constant([0]), length)
    tokens = graph.add("Gather", graph.constant(embeddings.token.weight), ids)
    kinds = graph.add("Gather", graph.constant(embeddings.segment.weight), segments)
    return add_norm(graph, graph.add("Sum", tokens, kinds, positions), embeddings.norm)


def _layer(
    graph: Graph,
    layer: Layer,
    linears: Linears,
    hidden: str,
    shapes: Shapes,
    mask: str,
    rows: str,
    number: int,
    activation: str,
) -> str:
    qkv = linears.product(graph, hidden, layer.qkv, key=f"{number}.qkv", parts=3)
    boxed = [graph.add("Reshape", part, shapes.boxed) for part in qkv]
    bias = graph.constant(linears.bias(layer.qkv, f"{number}.qkv"))
    inputs = [*boxed, bias, mask] if mask else [*boxed, bias]
    mixed = graph.add("MultiHeadAttention", *inputs, runtime=True, num_heads=layer.num_heads)
    mixed = graph.add("Reshape", mixed, shapes.flat)
    if rows:
        hidden, mixed = graph.add("Gather", hidden, rows), graph.add("Gather", mixed, rows)
    hidden = _residual(graph, layer.attention_output, linears, mixed, hidden, layer.attention_norm, number, KINDS[1])
    (expanded,) = linears.product(graph, hidden, layer.up, key=f"{number}.up")
    expanded = add_activation(graph, expanded, linears.bias(layer.up, f"{number}.up"), activation)
    return _residual(graph, layer.down, linears, expanded, hidden, layer.output_norm, number, KINDS[3])


def _residual(
    graph: Graph, layer: nn.Linear, linears: Linears, inner: str, outer: str, norm: nn.LayerNorm, number: int, kind: str
) -> str:
    """norm(x + sublayer(x))."""
    key = f"{number}.{kind}"
    (product,) = linears.product(graph, inner, layer, key=key)
    return add_norm(graph, graph.add("Sum", product, outer, graph.constant(linears.bias(layer, key))), norm)


def add_norm(graph: Graph, hidden: str, norm: nn.LayerNorm) -> str:
    """LayerNorm over the last axis."""
    weights = [graph.constant(tensor) for tensor in (norm.weight, norm.bias)]
    return graph.add("LayerNormalization", hidden, *weights, axis=-1, epsilon=norm.eps)


def add_linear(graph: Graph, hidden: str, weight: Tensor, bias: Tensor, output: str = "") -> str:
    """A head's product in float32 on [R, D]; the weight stays as the checkpoint has it."""
    return graph.add("Gemm", hidden, graph.constant(weight), graph.constant(bias), transB=1, output=output)


def add_activation(graph: Graph, hidden: str, bias: np.ndarray | None, name: str) -> str:
    """The activation of hidden + bias; GELU in its erf form is one fused node, its tanh form another."""
    fused = {"gelu": "BiasGelu", "gelu_tanh": "FastGelu"}
    if name in fused and bias is not None:
        return graph.add(fused[name], hidden, graph.constant(bias), runtime=True)
    if bias is not None:
        hidden = graph.add("Add", hidden, graph.constant(bias))
    if name in fused:
        return graph.add({"gelu": "Gelu", "gelu_tanh": "FastGelu"}[name], hidden, runtime=True)
    if name == "silu":
        return graph.add("Mul", hidden, graph.add("Sigmoid", hidden))
    return graph.add({"relu": "Relu", "tanh": "Tanh"}[name], hidden)
