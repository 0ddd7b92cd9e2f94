"""Linear layers as graph nodes: in float32, or in eight bits with a scale for every token and every output.

Eight bits: y = r (q W8) w + b. q holds the token's values over its own scale r, W8 the weights over the scale w of
their output. Scales by token make a result independent of whatever else is in the batch. Channels that are always
large would leave the others few steps, so inputs are first divided by a factor a channel, and the rows of W multiplied
by it, which changes nothing exactly (Xiao et al., 2023: SmoothQuant).
Dimensions: T tokens, K inputs, N outputs.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bertkit.export.graph import Graph

Array = NDArray[np.float32]
SYMMETRIC, CENTRE = 127, 128  # steps to either side of zero, and where zero stands in unsigned bytes
UNSIGNED = 255
SMALLEST = 1e-12  # keeps a row of zeros from a scale of zero
# By measurement on sentence vectors (docs/log.md): how much of a channel's size moves into the weights.
SHARES = {"qkv": 0.7, "up": 0.5}
LEAST_GELU = 0.17  # GELU never falls below minus this


@dataclass(frozen=True)
class Narrow:
    """A linear layer's weights in eight bits: [K, N] with a scale an output."""

    weights: NDArray[np.int8]
    scales: Array  # [N]

    def sums(self) -> Array:
        """What a row of ones gives: [N]."""
        total: Array = (self.weights.sum(axis=0, dtype=np.int64) * self.scales).astype(np.float32)
        return total


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
    """How linear layers are written down: [T, K] -> [T, N] without the bias where it is left to the next node."""

    def product(self, graph: Graph, hidden: str, layer: nn.Linear, *, key: str, parts: int = 1) -> list[str]:
        """x W of each part of the outputs, without bias."""

    def bias(self, layer: nn.Linear, key: str) -> Array:
        """What is still to be added."""


def array(tensor: Tensor) -> Array:
    """A weight as float32 numbers."""
    values: Array = tensor.detach().float().cpu().numpy()
    return values


class FloatLinears:
    """Plain products."""

    def product(self, graph: Graph, hidden: str, layer: nn.Linear, *, key: str, parts: int = 1) -> list[str]:
        """x W of each part of the outputs."""
        pieces = np.split(array(layer.weight), parts)
        return [graph.add("MatMul", hidden, graph.constant(np.ascontiguousarray(piece.T))) for piece in pieces]

    def bias(self, layer: nn.Linear, key: str) -> Array:
        """The layer's own."""
        return array(layer.bias)


class NarrowLinears:
    """Products of bytes. `largest` holds each smoothed input's largest values a channel, by "layer.kind"."""

    def __init__(self, largest: dict[str, Array], *, follows_gelu: bool) -> None:
        self.largest = largest
        self.follows_gelu = follows_gelu  # then `down` reads values from -0.17 up, better held in unsigned bytes

    def product(self, graph: Graph, hidden: str, layer: nn.Linear, *, key: str, parts: int = 1) -> list[str]:
        """r (q W8) w of each part of the outputs; the tokens are brought to bytes once."""
        weights = array(layer.weight)
        kind = key.rpartition(".")[2]
        if kind in SHARES and key in self.largest:
            factors = smoothing(self.largest[key], weights, SHARES[kind])
            weights = weights * factors
            hidden = graph.add("Mul", hidden, graph.constant(1 / factors))
        zero = 0 if self._is_unsigned(key) else CENTRE
        if zero == 0:
            hidden = graph.add("Add", hidden, graph.constant(LEAST_GELU))
        scales, rows = self._scales(graph, hidden, unsigned=zero == 0)
        zeros = graph.add("Expand", graph.constant(np.uint8(zero)), graph.add("Shape", scales))
        bytes_ = graph.add("QuantizeLinear", hidden, scales, zeros, axis=0)
        return [self._product8(graph, bytes_, piece, zero, rows) for piece in np.split(weights, parts)]

    def bias(self, layer: nn.Linear, key: str) -> Array:
        """The layer's own, less what the shift of GELU's values added."""
        shift = LEAST_GELU * narrow(array(layer.weight)).sums() if self._is_unsigned(key) else 0.0
        total: Array = (array(layer.bias) - shift).astype(np.float32)
        return total

    def _is_unsigned(self, key: str) -> bool:
        return self.follows_gelu and key.endswith(".down")

    def _scales(self, graph: Graph, hidden: str, *, unsigned: bool) -> tuple[str, str]:
        """The size of one step of each token, as [T] and as [T, 1]."""
        sizes = hidden if unsigned else graph.add("Abs", hidden)
        largest = graph.add("ReduceMax", sizes, axes=[1], keepdims=1)
        positive = graph.add("Max", largest, graph.constant(SMALLEST))
        rows = graph.add("Mul", positive, graph.constant(1 / (UNSIGNED if unsigned else SYMMETRIC)))
        return graph.add("Squeeze", rows, graph.constant([1])), rows

    def _product8(self, graph: Graph, bytes_: str, weights: Array, zero: int, rows: str) -> str:
        small = narrow(weights)
        product = graph.add(
            "MatMulIntegerToFloat",
            bytes_,
            graph.constant(small.weights),
            graph.constant(1.0),
            graph.constant(small.scales),
            graph.constant(np.uint8(zero)),
            runtime=True,
        )
        return graph.add("Mul", product, rows)
