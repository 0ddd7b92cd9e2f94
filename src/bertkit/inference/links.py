"""Where attention heads look, in a few lines: the strongest links of a head, and which heads look most sharply."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import BertkitError

Weights = NDArray[np.float32]


@dataclass(frozen=True)
class Link:
    """Token `source` at `from_position` takes this share from token `target`."""

    layer: int  # from 1
    head: int | None  # from 1; None for the mean of the layer's heads
    from_position: int
    to_position: int
    source: str
    target: str
    weight: float


def check_head(num_layers: int, num_heads: int, layer: int | None, head: int | None) -> None:
    """Refuse layers and heads that a model does not have."""
    for name, number, count in (("layer", layer, num_layers), ("head", head, num_heads)):
        if number is not None and not 1 <= number <= count:
            raise BertkitError(f"there is no {name} {number}; this model has {name}s 1 to {count}")
    if head is not None and layer is None:
        raise BertkitError("--head needs --layer: every layer has heads of its own")


def strongest_links(
    tokens: Sequence[str],
    weights_LHTT: Weights,
    *,
    layer: int | None = None,
    head: int | None = None,
    ordinary: Sequence[bool] | None = None,
    count: int = 8,
) -> list[Link]:
    """The largest weights of one head (or of a layer's mean), or the largest one of each of the sharpest heads.

    With `ordinary`, only links between those tokens count: most heads rest on [CLS] or [SEP].
    """
    if ordinary is not None:
        weights_LHTT = np.where(np.outer(ordinary, ordinary), weights_LHTT, -1.0).astype(np.float32)
    if layer is not None:
        matrix = weights_LHTT[layer - 1].mean(axis=0) if head is None else weights_LHTT[layer - 1, head - 1]
        return list(_largest(tokens, matrix, layer, head, count))
    heads = [(row + 1, column + 1) for row, column in np.ndindex(weights_LHTT.shape[:2])]
    first = [
        link for row, column in heads for link in _largest(tokens, weights_LHTT[row - 1, column - 1], row, column, 1)
    ]
    return sorted(first, key=lambda link: -link.weight)[:count]


def _largest(tokens: Sequence[str], matrix_TT: Weights, layer: int, head: int | None, count: int) -> Iterator[Link]:
    for flat in np.argsort(-matrix_TT, axis=None, kind="stable")[:count]:
        start, end = (int(index) for index in np.unravel_index(flat, matrix_TT.shape))
        if matrix_TT[start, end] >= 0.0:
            yield Link(layer, head, start, end, tokens[start], tokens[end], float(matrix_TT[start, end]))
