"""A model becomes ONNX: for everybody (input ids, mask and segments in, a named output out), or for bertkit's engine.

The engine's graphs have no mask, since what attends together is of one length, and give just the rows asked for.
"""

from typing import Any

from bertkit.errors import BertkitError
from bertkit.export.encoder import add_encoder, box_layout, packed_layout
from bertkit.export.graph import Graph
from bertkit.export.linear import Array, FloatLinears, Linears, NarrowLinears, signed_sums_are_exact
from bertkit.export.outputs import Output, add_outputs, check_output
from bertkit.model.bert import BertModel
from bertkit.model.formats.sentence_transformers import SentenceStyle

MOST_BYTES = 2**31 - 2**20  # of one ONNX file without side files


def build_model(
    model: BertModel,
    output: Output,
    *,
    style: SentenceStyle | None = None,
    largest: dict[str, Array] | None = None,
    signed: bool | None = None,
) -> Any:
    """The ONNX model of one output; eight-bit where the channels' largest values are given, `signed` as NarrowLinears."""
    check_output(output, model.config)
    graph = Graph()
    shapes = add_outputs(graph, model, linears_for(model, largest, signed), output, style or SentenceStyle())
    return _finish(graph, shapes, {"bertkit.output": output, "bertkit.precision": _precision(largest)})


def build_engine(model: BertModel, *, largest: dict[str, Array] | None = None, num_boxes: int | None = None) -> bytes:
    """The serialized graph that bertkit runs: ids, segments and rows [R] in, vectors [R, D] out.

    Ids are sequences of one length, [N, S]; or, with a number of boxes, sequences of that many lengths end to end, [T].
    """
    graph = Graph()
    embeddings = model.encoder.embeddings
    if num_boxes is None:
        layout = box_layout(graph, embeddings, masked=False)
    else:
        layout = packed_layout(graph, embeddings, num_boxes)
    rows = graph.add_input("rows", ["rows"])
    hidden = add_encoder(graph, model, linears_for(model, largest), layout, rows)
    graph.add("Identity", hidden, output="vectors")
    finished = _finish(graph, {"vectors": ("rows", model.config.hidden_size)}, {})
    serialized: bytes = finished.SerializeToString()
    return serialized


def linears_for(model: BertModel, largest: dict[str, Array] | None, signed: bool | None = None) -> Linears:
    """How linear layers are written down; in eight bits for this CPU, unless it is said for which."""
    if largest is None:
        return FloatLinears()
    follows_gelu = model.config.activation in ("gelu", "gelu_tanh")
    signed = signed_sums_are_exact() if signed is None else signed
    return NarrowLinears(largest, follows_gelu=follows_gelu, signed=signed)


def _precision(largest: dict[str, Array] | None) -> str:
    return "float32" if largest is None else "int8"


def _finish(graph: Graph, shapes: Any, notes: dict[str, str]) -> Any:
    finished = graph.finish(shapes, notes)
    if finished.ByteSize() > MOST_BYTES:
        raise BertkitError("this model is too large for one ONNX file (2 GB); export it with int8")
    return finished
