"""The encoder of section 3 of the paper as graph nodes: token ids in, one vector a token out.

Linear layers see [T, D], the tokens of all sequences one under another; attention sees boxes [N, S, D] of sequences of
one length, one or several beside each other. Sums with the residual are `Sum`, not `Add`: ONNX Runtime would join Add and
LayerNormalization into an operator that is six times slower on CPUs.
Dimensions: N sequences, S tokens each, T tokens in all, D hidden, R rows asked for, B boxes.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
from torch import Tensor, nn

from bertkit.errors import BertkitError
from bertkit.export.graph import INT32, Graph
from bertkit.export.linear import Array, Linears, array
from bertkit.model.bert import BertModel
from bertkit.model.encoder import Embeddings, Layer


@dataclass(frozen=True)
class Layout:
    """Values that say what the tokens are and how they lie."""

    ids: str  # [N, S], or [T]
    segments: str
    places: str  # position vectors, one a token, or [S, D] for all sequences
    boxes: tuple[str, ...]  # the shape of each box, [N, S, D]
    sizes: str = ""  # tokens of each box, [B], where there are several
    mask: str = ""  # [N, S], where sequences are padded


def box_layout(graph: Graph, embeddings: Embeddings, *, masked: bool) -> Layout:
    """Sequences of one length, or padded to one and masked: inputs [N, S]."""
    ids = graph.add_input("input_ids", ["batch", "sequence"])
    mask = ""
    if masked:
        mask = graph.add("Cast", graph.add_input("attention_mask", ["batch", "sequence"]), to=INT32)
    segments = graph.add_input("token_type_ids", ["batch", "sequence"])
    box = graph.add("Concat", graph.add("Shape", ids), graph.constant([-1]), axis=0)
    length = graph.add("Shape", ids, start=1, end=2)
    places = graph.add("Slice", graph.constant(embeddings.position.weight), graph.constant([0]), length)
    return Layout(ids, segments, places, (box,), mask=mask)


def packed_layout(graph: Graph, embeddings: Embeddings, num_boxes: int) -> Layout:
    """Sequences of up to so many lengths, end to end: inputs [T], and for each box its tokens and its shape.

    Linear layers then run on all of them at once; a box without sequences costs next to nothing.
    """
    ids, segments, positions = (
        graph.add_input(name, ["tokens"]) for name in ("input_ids", "token_type_ids", "positions")
    )
    places = graph.add("Gather", graph.constant(embeddings.position.weight), positions)
    sizes = graph.add_input("sizes", [num_boxes])
    shapes = graph.add("Reshape", graph.add_input("boxes", [num_boxes, 3]), graph.constant([-1]))
    return Layout(ids, segments, places, tuple(graph.split(shapes, num_boxes)), sizes)


def add_encoder(graph: Graph, model: BertModel, linears: Linears, layout: Layout, rows: str = "") -> str:
    """Vectors of all tokens, [T, D], or of the rows named by a value [R]: the last layer leaves the others out."""
    config = model.config
    if config.is_causal:
        raise BertkitError("this checkpoint is left to right, and the exported attention is not; use it with PyTorch")
    flat = graph.constant([-1, config.hidden_size])
    hidden = graph.add("Reshape", _embed(graph, model.encoder.embeddings, layout), flat)
    layers = cast(list[Layer], list(model.encoder.layers))
    for number, layer in enumerate(layers):
        chosen = rows if number == len(layers) - 1 else ""
        hidden = _layer(graph, layer, linears, hidden, layout, chosen, number, config.activation)
    return hidden


def _embed(graph: Graph, embeddings: Embeddings, layout: Layout) -> str:
    tokens = graph.add("Gather", graph.constant(embeddings.token.weight), layout.ids)
    kinds = graph.add("Gather", graph.constant(embeddings.segment.weight), layout.segments)
    return add_norm(graph, graph.add("Sum", tokens, kinds, layout.places), embeddings.norm)


def _layer(
    graph: Graph,
    layer: Layer,
    linears: Linears,
    hidden: str,
    layout: Layout,
    rows: str,
    number: int,
    activation: str,
) -> str:
    mixed, bias = _attend(graph, layer, linears, hidden, layout, number)
    if rows:
        hidden, mixed = graph.add("Gather", hidden, rows), graph.add("Gather", mixed, rows)

    def product(kind: str, inner: str, linear: nn.Linear) -> str:
        return linears.product(graph, inner, linear, key=f"{number}.{kind}", chosen=bool(rows))

    mixed = product("attention_output", mixed, layer.attention_output)
    hidden = _residual(graph, mixed, hidden, bias, layer.attention_norm)
    expanded = product("up", hidden, layer.up)
    expanded = add_activation(graph, expanded, array(layer.up.bias), activation, rounded=linears.rounded)
    return _residual(graph, product("down", expanded, layer.down), hidden, array(layer.down.bias), layer.output_norm)


def _attend(
    graph: Graph, layer: Layer, linears: Linears, hidden: str, layout: Layout, number: int
) -> tuple[str, Array]:
    """What the heads gather, [T, D], and the bias of the layer that reads it.

    Of the three biases only the queries' is added here. The keys' adds the same to all scores of a query, which
    softmax does not see; the values' leaves attention as it is, since weights sum to 1, and moves into the next bias.
    """
    bias_q, _, bias_v = np.split(array(layer.qkv.bias), 3)
    queries, keys, values = _project(graph, layer, linears, hidden, layout, number)
    queries = graph.add("Add", queries, graph.constant(bias_q))
    parts = [
        graph.split_by(value, layout.sizes, len(layout.boxes)) if layout.sizes else [value]
        for value in (queries, keys, values)
    ]
    flat = graph.constant([-1, len(bias_q)])
    mixed = [
        _attend_box(graph, part, box, flat, layout.mask, layer.num_heads)
        for *part, box in zip(*parts, layout.boxes, strict=True)
    ]
    bias: Array = array(layer.attention_output.bias) + array(layer.attention_output.weight) @ bias_v
    return graph.add("Concat", *mixed, axis=0) if len(mixed) > 1 else mixed[0], bias


def _project(graph: Graph, layer: Layer, linears: Linears, hidden: str, layout: Layout, number: int) -> list[str]:
    """Queries, keys and values, each [T, D].

    Three products save the copy that cuts one in three; a lone text, whose products all threads share, waits less for one.
    """
    key = f"{number}.qkv"
    if layout.sizes:
        return linears.products(graph, hidden, layer.qkv, 3, key=key)
    return graph.split(linears.product(graph, hidden, layer.qkv, key=key), 3)


def _attend_box(graph: Graph, parts: list[str], box: str, flat: str, mask: str, num_heads: int) -> str:
    """Queries, keys and values of sequences of one length, [N S, D] each -> [N S, D]; a box may be empty."""
    inputs = [graph.add("Reshape", part, box, allowzero=1) for part in parts]
    mixed = graph.add("MultiHeadAttention", *inputs, *(["", mask] if mask else []), runtime=True, num_heads=num_heads)
    return graph.add("Reshape", mixed, flat)


def _residual(graph: Graph, product: str, outer: str, bias: Array, norm: nn.LayerNorm) -> str:
    """norm(x + sublayer(x))."""
    return add_norm(graph, graph.add("Sum", product, outer, graph.constant(bias)), norm)


def add_norm(graph: Graph, hidden: str, norm: nn.LayerNorm) -> str:
    """LayerNorm over the last axis."""
    weights = [graph.constant(tensor) for tensor in (norm.weight, norm.bias)]
    return graph.add("LayerNormalization", hidden, *weights, axis=-1, epsilon=norm.eps)


def add_linear(graph: Graph, hidden: str, weight: Tensor, bias: Tensor, output: str = "") -> str:
    """A head's product in float32 on [R, D]; the weight stays as the checkpoint has it."""
    return graph.add("Gemm", hidden, graph.constant(weight), graph.constant(bias), transB=1, output=output)


def add_activation(graph: Graph, hidden: str, bias: Array | None, name: str, *, rounded: bool = False) -> str:
    """The activation of hidden + bias; GELU in its erf form is one fused node, its tanh form another.

    Where the result is rounded to bytes, the tanh form, a third faster, stands for both: they differ by 0.0005 at most.
    """
    if rounded and name == "gelu":
        name = "gelu_tanh"
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
