"""Linear layers as graph nodes: in float32, or in eight bits with a scale for every token and every output.

Eight bits: y = r (q W8) w + b. q holds the token's values over its own scale r, W8 the weights over the scale w of
their output. Scales by token make a result independent of whatever else is in the batch. Channels that are always
large would leave the others few steps, so inputs are first divided by a factor a channel, and the rows of W multiplied
by it, which changes nothing exactly (Xiao et al., 2023: SmoothQuant).
Dimensions: T tokens, K inputs, N outputs.
"""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bertkit.export.graph import UINT8, Graph

Array = NDArray[np.float32]
SYMMETRIC, CENTRE = 127, 128  # steps to either side of zero, and where zero stands in unsigned bytes
SMALLEST = 1e-12  # keeps an output whose weights are all zero from a scale of zero
# By measurement on sentence vectors (docs/log.md): how much of a channel's size moves into the weights.
SHARES = {"qkv": 0.7, "up": 0.5}
# GELU never falls below -0.17, so that few of the 256 steps are enough below zero. The largest value of a token counts
# as at least LEAST_PEAK: then -0.17 is still within the steps, and nothing is cut.
GELU_ZERO, GELU_STEPS = 40, 215
LEAST_PEAK = 0.17 * GELU_STEPS / GELU_ZERO


@dataclass(frozen=True)
class Narrow:
    """A linear layer's weights in eight bits: [K, N] with a scale an output."""

    weights: NDArray[np.int8]
    scales: Array  # [N]


def narrow(weights_NK: Array) -> Narrow:
    """Round to the nearest of 255 steps, for every output by itself."""
    scales = np.maximum(np.abs(weights_NK).max(axis=1) / SYMMETRIC, SMALLEST).astype(np.float32)
    return Narrow(np.round(weights_NK / scales[:, None]).astype(np.int8).T.copy(), scales)


def smoothing(largest_K: Array, weights_NK: Array, share: float) -> Array:
    """The factor of every input channel: its largest value to the power `share`, its weights' to the rest."""
    values = np.maximum(largest_K, 1e-3)
    weights = np.maximum(np.abs(weights_NK).max(axis=0), 1e-3)
    factors = values**share / weights ** (1 - share)
    scaled: Array = (factors / np.median(factors)).astype(np.float32)
    return scaled


class Linears(Protocol):
    """How linear layers are written down: [T, K] -> [T, N]; the bias is left to the next node."""

    rounded: bool  # whether numbers are rounded to bytes anyway, so that GELU's tanh form is as good

    def product(self, graph: Graph, hidden: str, layer: nn.Linear, *, key: str, chosen: bool = False) -> str:
        """x W, without bias; `chosen` where T are the rows asked for and not all tokens."""

    def products(self, graph: Graph, hidden: str, layer: nn.Linear, num: int, *, key: str) -> list[str]:
        """x W as so many products of equally many outputs each."""


def array(tensor: Tensor) -> Array:
    """A weight as float32 numbers."""
    values: Array = tensor.detach().float().cpu().numpy()
    return values


class FloatLinears:
    """Plain products."""

    rounded = False

    def product(self, graph: Graph, hidden: str, layer: nn.Linear, *, key: str, chosen: bool = False) -> str:
        """x W."""
        return self.products(graph, hidden, layer, 1, key=key)[0]

    def products(self, graph: Graph, hidden: str, layer: nn.Linear, num: int, *, key: str) -> list[str]:
        """Parts of x W."""
        parts = np.split(array(layer.weight), num)
        return [graph.add("MatMul", hidden, graph.constant(np.ascontiguousarray(part.T))) for part in parts]


class NarrowLinears:
    """Products of bytes, for one graph. `largest` holds each smoothed input's largest values a channel, by "layer.kind".

    Signed weights are for CPUs of which `signed_sums_are_exact` holds, unsigned ones, with zero at 128, for any: slower
    by far where both are right, and equal to the bit.
    """

    rounded = True

    def __init__(self, largest: dict[str, Array], *, follows_gelu: bool, signed: bool) -> None:
        self.largest = largest
        self.signed = signed
        self.follows_gelu = follows_gelu  # then `down` reads values from -0.17 up
        self._zeros: dict[tuple[int, bool], str] = {}  # zero points of all tokens, or of the chosen, made once

    def product(self, graph: Graph, hidden: str, layer: nn.Linear, *, key: str, chosen: bool = False) -> str:
        """r (q W8) w."""
        return self._products(graph, hidden, layer, 1, key, chosen)[0]

    def products(self, graph: Graph, hidden: str, layer: nn.Linear, num: int, *, key: str) -> list[str]:
        """Parts of r (q W8) w; tokens are rounded once."""
        return self._products(graph, hidden, layer, num, key, chosen=False)

    def _products(self, graph: Graph, hidden: str, layer: nn.Linear, num: int, key: str, chosen: bool) -> list[str]:
        weights = array(layer.weight)
        kind = key.rpartition(".")[2]
        if kind in SHARES and key in self.largest:
            factors = smoothing(self.largest[key], weights, SHARES[kind])
            weights = weights * factors
            hidden = graph.add("Mul", hidden, graph.constant(1 / factors))
        after_gelu = self.follows_gelu and kind == "down"
        zero = GELU_ZERO if after_gelu else CENTRE
        scales = self._scales(graph, hidden, after_gelu=after_gelu)
        bytes_ = graph.add("QuantizeLinear", hidden, scales, self._zero_points(graph, scales, zero, chosen), axis=0)
        rows = graph.add("Unsqueeze", scales, graph.constant([1]))
        return [self._product8(graph, bytes_, part, zero, rows) for part in np.split(weights, num)]

    def _scales(self, graph: Graph, hidden: str, *, after_gelu: bool) -> str:
        """The size of one step of each token, [T]; 0 for a row of zeros, whose product it then makes 0."""
        if after_gelu:
            largest = graph.add("ReduceMax", hidden, axes=[1], keepdims=0)
            peaks = graph.add("Max", largest, graph.constant(LEAST_PEAK))
            return graph.add("Mul", peaks, graph.constant(1 / GELU_STEPS))
        largest = graph.add("ReduceMax", graph.add("Abs", hidden), axes=[1], keepdims=0)
        return graph.add("Mul", largest, graph.constant(1 / SYMMETRIC))

    def _zero_points(self, graph: Graph, scales: str, zero: int, chosen: bool) -> str:
        if (zero, chosen) not in self._zeros:
            shape = graph.add("Shape", scales)
            self._zeros[zero, chosen] = graph.add("Expand", graph.constant(np.uint8(zero)), shape)
        return self._zeros[zero, chosen]

    def _product8(self, graph: Graph, bytes_: str, weights: Array, zero: int, rows: str) -> str:
        small = narrow(weights)
        places = small.weights if self.signed else (small.weights.astype(np.int16) + CENTRE).astype(np.uint8)
        centres = [np.uint8(zero)] if self.signed else [np.uint8(zero), np.uint8(CENTRE)]
        product = graph.add(
            "MatMulIntegerToFloat",
            bytes_,
            graph.constant(places),
            graph.constant(1.0),
            graph.constant(small.scales),
            *map(graph.constant, centres),
            runtime=True,
        )
        return graph.add("Mul", product, rows)


@cache
def signed_sums_are_exact() -> bool:
    """Whether ONNX Runtime adds up products of unsigned and signed bytes exactly on this CPU, found by trial.

    x86 without VNNI or AMX adds pairs of them in 16 bits and cuts sums at 32,767, without a word.
    """
    if find_spec("onnxruntime") is None:
        return False
    import onnxruntime

    graph = Graph()
    bytes_ = graph.add_input("bytes", ["rows", 64], UINT8)
    weights = graph.constant(np.full((64, 16), SYMMETRIC, np.int8))
    one = graph.constant(1.0)
    graph.add("MatMulIntegerToFloat", bytes_, weights, one, one, runtime=True, output="sums")
    model = graph.finish({"sums": ("rows", 16)}, {})
    alone = onnxruntime.SessionOptions()
    alone.intra_op_num_threads = 1  # or it starts a thread a core
    session = onnxruntime.InferenceSession(model.SerializeToString(), alone, providers=["CPUExecutionProvider"])
    sums = session.run(None, {"bytes": np.full((8, 64), 255, np.uint8)})[0]
    return bool((sums == 64 * 255 * SYMMETRIC).all())
