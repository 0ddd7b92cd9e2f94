"""What a graph gives: hidden states, sentence vectors, or what a head says; padding never leaks in.

Each output reads the rows it needs: heads over [CLS] leave the other tokens out of the last layer. Names are those
that the ecosystem uses: last_hidden_state, sentence_embedding, pooler_output, logits, start_logits, end_logits.
Dimensions: N sequences, S tokens each, D hidden, C labels, V vocabulary.
"""

from collections.abc import Sequence
from typing import Literal

from bertkit.errors import BertkitError
from bertkit.export.encoder import add_activation, add_encoder, add_linear, add_norm, box_layout
from bertkit.export.graph import FLOAT, Graph
from bertkit.export.linear import Linears
from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig
from bertkit.model.formats.sentence_transformers import SentenceStyle

Output = Literal["hidden", "sentence", "pooler", "mlm", "nsp", "classifier", "tagger", "span"]
OUTPUTS: tuple[Output, ...] = ("hidden", "sentence", "pooler", "mlm", "nsp", "classifier", "tagger", "span")
OVER_CLS = ("pooler", "nsp", "classifier")
Shape = Sequence[str | int]
TINY = 1e-12


def check_output(output: str, config: BertConfig) -> None:
    """Refuse what this model cannot give."""
    if output not in OUTPUTS:
        raise BertkitError(f"unknown output {output!r}; choose one of {', '.join(OUTPUTS)}")
    if output not in ("hidden", "sentence", *config.heads):
        has = ", ".join(("hidden", "sentence", *config.heads))
        raise BertkitError(f"this checkpoint has no {output} head; it can give {has}")


def default_output(config: BertConfig, style: SentenceStyle | None) -> Output:
    """The task's head where there is one, sentence vectors where the model was tuned for them, else hidden states."""
    for head in ("classifier", "tagger", "span"):
        if head in config.heads:
            return head
    return "sentence" if style is not None else "hidden"


def add_outputs(
    graph: Graph, model: BertModel, linears: Linears, output: Output, style: SentenceStyle
) -> dict[str, Shape]:
    """The whole graph from input ids to the chosen output; its names and shapes."""
    over_cls = output in OVER_CLS or (output == "sentence" and style.pooling == "cls")
    layout = box_layout(graph, model.encoder.embeddings, masked=True)
    rows = _cls_rows(graph) if over_cls else ""
    hidden = add_encoder(graph, model, linears, layout, rows)
    if output == "sentence":
        return _add_sentence(graph, hidden, style, model.config.hidden_size)
    return _add_head(graph, model, hidden, output)


def _cls_rows(graph: Graph) -> str:
    """Where each sequence begins among all tokens: 0, S, 2 S, ..."""
    end = graph.add("ReduceProd", graph.add("Shape", "input_ids"), keepdims=0)
    step = graph.add("Squeeze", graph.add("Shape", "input_ids", start=1, end=2))
    return graph.add("Range", graph.add("Squeeze", graph.constant([0])), end, step)


def _boxed(graph: Graph, flat: str, width: int, output: str) -> str:
    shape = graph.add("Concat", graph.add("Shape", "input_ids"), graph.constant([width]), axis=0)
    return graph.add("Reshape", flat, shape, output=output)


def _add_sentence(graph: Graph, hidden: str, style: SentenceStyle, width: int) -> dict[str, Shape]:
    outputs: dict[str, Shape] = {}
    if style.pooling == "cls":
        vectors = hidden
    else:
        boxed = _boxed(graph, hidden, width, "last_hidden_state")
        outputs["last_hidden_state"] = ("batch", "sequence", width)
        vectors = _pool(graph, boxed, style.pooling)
    if style.normalize:
        length = graph.add("Max", graph.add("ReduceL2", vectors, axes=[1], keepdims=1), graph.constant(TINY))
        vectors = graph.add("Div", vectors, length)
    graph.add("Identity", vectors, output="sentence_embedding")
    return {**outputs, "sentence_embedding": ("batch", width)}


def _pool(graph: Graph, boxed: str, pooling: str) -> str:
    """Over the real tokens alone: [N, S, D] -> [N, D]."""
    mask = graph.add("Cast", graph.add("Unsqueeze", "attention_mask", graph.constant([2])), to=FLOAT)
    if pooling == "max":
        real = graph.add("Greater", mask, graph.constant(0.0))
        return graph.add("ReduceMax", graph.add("Where", real, boxed, graph.constant(-3e38)), axes=[1], keepdims=0)
    total = graph.add("ReduceSum", graph.add("Mul", boxed, mask), graph.constant([1]), keepdims=0)
    count = graph.add("ReduceSum", mask, graph.constant([1]), keepdims=0)
    return graph.add("Div", total, graph.add("Max", count, graph.constant(1.0)))


def _add_head(graph: Graph, model: BertModel, hidden: str, output: Output) -> dict[str, Shape]:
    config = model.config
    if output in OVER_CLS:
        return _add_cls_head(graph, model, hidden, output)
    if output == "hidden":
        _boxed(graph, hidden, config.hidden_size, "last_hidden_state")
        return {"last_hidden_state": ("batch", "sequence", config.hidden_size)}
    if output == "span":
        return _add_span(graph, model, hidden)
    flat = _mlm(graph, model, hidden) if output == "mlm" else _tags(graph, model, hidden)
    width = config.vocab_size if output == "mlm" else len(config.labels)
    _boxed(graph, flat, width, "logits")
    return {"logits": ("batch", "sequence", width)}


def _add_cls_head(graph: Graph, model: BertModel, hidden: str, output: Output) -> dict[str, Shape]:
    assert model.pooler is not None  # checked with the config
    raw = add_linear(graph, hidden, model.pooler.weight, model.pooler.bias)
    pooled = graph.add("Tanh", raw, output="pooler_output" if output == "pooler" else "")
    if output == "pooler":
        return {"pooler_output": ("batch", model.config.hidden_size)}
    head = model.nsp if output == "nsp" else model.classifier
    assert head is not None
    add_linear(graph, pooled, head.weight, head.bias, output="logits")
    return {"logits": ("batch", head.out_features)}


def _mlm(graph: Graph, model: BertModel, hidden: str) -> str:
    head = model.mlm
    assert head is not None
    raw = add_linear(graph, hidden, head.transform.weight, head.transform.bias)
    transformed = add_norm(graph, add_activation(graph, raw, None, model.config.activation), head.norm)
    weight = model.encoder.embeddings.token.weight if head.decoder is None else head.decoder.weight
    return add_linear(graph, transformed, weight, head.bias)


def _tags(graph: Graph, model: BertModel, hidden: str) -> str:
    assert model.tagger is not None
    return add_linear(graph, hidden, model.tagger.weight, model.tagger.bias)


def _add_span(graph: Graph, model: BertModel, hidden: str) -> dict[str, Shape]:
    assert model.span is not None
    both = add_linear(graph, hidden, model.span.weight, model.span.bias)
    shape = graph.add("Shape", "input_ids")
    for column, name in enumerate(("start_logits", "end_logits")):
        one = graph.add("Gather", both, graph.constant([column]), axis=1)
        graph.add("Reshape", one, shape, output=name)
    return dict.fromkeys(("start_logits", "end_logits"), ("batch", "sequence"))
