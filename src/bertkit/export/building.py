"""A model becomes ONNX: for everybody (input ids, mask and segments in, a named output out), or for bertkit's engine.

The engine's graph has no mask, since it is only given sequences of one length, and gives just the rows asked for.
"""

from typing import Any

from bertkit.errors import BertkitError
from bertkit.export.encoder import add_encoder
from bertkit.export.graph import Graph
from bertkit.export.linear import Array, FloatLinears, Linears, NarrowLinears
from bertkit.export.outputs import Output, add_outputs, check_output
from bertkit.model.bert import BertModel
from bertkit.model.formats.sentence_transformers import SentenceStyle

MOST_BYTES = 2**31 - 2**20  # of one ONNX file without side files


def build_model(
    model: BertModel, output: Output, *, style: SentenceStyle | None = None, largest: dict[str, Array] | None = None
) -> Any:
    """The ONNX model of one output; eight-bit where the channels' largest values are given."""
    check_output(output, model.config)
    graph = Graph()
    shapes = add_outputs(graph, model, linears_for(model, largest), output, style or SentenceStyle())
    return _finish(graph, shapes, {"bertkit.output": output, "bertkit.precision": _precision(largest)})


def build_engine(model: BertModel, *, largest: dict[str, Array] | None = None) -> bytes:
    """The serialized graph that bertkit runs: ids [N, S], segments [N, S] and rows [R] in, vectors [R, D] out."""
    graph = Graph()
    rows = graph.add_input("rows", ["rows"])
    hidden = add_encoder(graph, model, linears_for(model, largest), masked=False, rows=rows)
    graph.add("Identity", hidden, output="vectors")
    finished = _finish(graph, {"vectors": ("rows", model.config.hidden_size)}, {})
    serialized: bytes = finished.SerializeToString()
    return serialized


def linears_for(model: BertModel, largest: dict[str, Array] | None) -> Linears:
    """How linear layers are written down."""
    if largest is None:
        return FloatLinears()
    return NarrowLinears(largest, follows_gelu=model.config.activation in ("gelu", "gelu_tanh"))


def _precision(largest: dict[str, Array] | None) -> str:
    return "float32" if largest is None else "int8"


def _finish(graph: Graph, shapes: Any, notes: dict[str, str]) -> Any:
    finished = graph.finish(shapes, notes)
    if finished.ByteSize() > MOST_BYTES:
        raise BertkitError("this model is too large for one ONNX file (2 GB); export it with int8")
    return finished
