"""A graph under construction: nodes are added one after another, weights become constants, and a model comes out.

Fused operators are those of ONNX Runtime (domain com.microsoft); everything else is plain ONNX.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bertkit.errors import BertkitError

OPSET = 17
IR_VERSION = 9  # what ONNX Runtime 1.20 and newer read
RUNTIME = "com.microsoft"
FLOAT, UINT8, INT32, INT64 = 1, 2, 6, 7  # ONNX's numbers of these types


def load_onnx() -> Any:
    """The onnx package, or one line that says how to get it."""
    try:
        import onnx
    except ImportError:
        raise BertkitError("ONNX graphs need the onnx package: pip install 'bertkit[onnx]'") from None
    return onnx


class Graph:
    """Nodes in the order of their making; the names of values are strings, as in ONNX."""

    def __init__(self) -> None:
        self.onnx = load_onnx()
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._known: dict[tuple[Any, ...], str] = {}  # a weight or small constant that is used twice is kept once
        self._kept: list[Any] = []  # so that no tensor's id is used again
        self._inputs: list[Any] = []

    def add_input(self, name: str, shape: Sequence[str | int], kind: int = INT64) -> str:
        """A value that the caller gives."""
        self._inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def constant(self, value: NDArray[Any] | np.generic | float | Sequence[int] | Tensor) -> str:
        """A weight; numbers are float32 and lists int64."""
        if isinstance(value, Tensor):
            key: tuple[Any, ...] = ("tensor", id(value))
            self._kept.append(value)
            value = value.detach().float().cpu().numpy()
        elif isinstance(value, float | int | list | tuple):
            value = np.float32(value) if isinstance(value, float | int) else np.asarray(value, np.int64)
            key = (value.dtype.str, value.shape, value.tobytes())
        else:
            key = ("array", len(self._constants))
        if key not in self._known:
            name = f"weight_{len(self._constants)}"
            self._constants[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)
            self._known[key] = name
        return self._known[key]

    def add(self, kind: str, *inputs: str, runtime: bool = False, output: str = "", **attributes: Any) -> str:
        """One node; the name of what leaves it."""
        name = output or f"{kind}_{len(self._nodes)}"
        domain = RUNTIME if runtime else ""
        self._nodes.append(
            self.onnx.helper.make_node(kind, list(inputs), [name], domain=domain, name=f"make_{name}", **attributes)
        )
        return name

    def split(self, value: str, parts: int) -> list[str]:
        """A value cut into equal parts along its last axis."""
        names = [f"Split_{len(self._nodes)}_{part}" for part in range(parts)]
        self._nodes.append(self.onnx.helper.make_node("Split", [value], names, name=f"make_{names[0]}", axis=-1))
        return names

    def split_by(self, value: str, sizes: str, parts: int) -> list[str]:
        """A value cut along its first axis into parts of these sizes."""
        names = [f"Cut_{len(self._nodes)}_{part}" for part in range(parts)]
        self._nodes.append(self.onnx.helper.make_node("Split", [value, sizes], names, name=f"make_{names[0]}", axis=0))
        return names

    def finish(self, outputs: Mapping[str, Sequence[str | int]], notes: Mapping[str, str]) -> Any:
        """The model: outputs by name with their shapes, all float32; notes go into its metadata."""
        make = self.onnx.helper
        values = [make.make_tensor_value_info(name, FLOAT, list(shape)) for name, shape in outputs.items()]
        graph = make.make_graph(self._nodes, "bert", self._inputs, values, list(self._constants.values()))
        opsets = [make.make_opsetid("", OPSET), make.make_opsetid(RUNTIME, 1)]
        model = make.make_model(graph, opset_imports=opsets, producer_name="bertkit")
        model.ir_version = IR_VERSION
        make.set_model_props(model, dict(notes))
        return model
