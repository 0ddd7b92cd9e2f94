"""The attention page: every layer and head to browse, as a heat map and as lines.

In: tokens, segments and the weights [L, H, T, T] of one input. Out: HTML, or the same component inside another page.
Weights travel as base64 of 16-bit numbers, 65535 for a weight of 1.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.pages.frame import Html, fill, frame

MOST_WEIGHTS = 16_000_000  # a page of some 45 MB, which browsers still open


class Attention(Protocol):
    """What the page needs of an attention map, such as `Bert.attention` returns."""

    @property
    def tokens(self) -> Sequence[str]: ...

    @property
    def segment_ids(self) -> Sequence[int]: ...

    @property
    def weights(self) -> NDArray[np.float32]: ...  # [L, H, T, T]


@dataclass(frozen=True)
class AttentionData:
    """The plain form of an attention map."""

    tokens: tuple[str, ...]
    segment_ids: tuple[int, ...]
    weights: NDArray[np.float32]  # [L, H, T, T]


def attention_page(
    attention: Attention, *, model: str, untrained: bool = False, layer: int | None = None, head: int | None = None
) -> str:
    """One page to browse the heads of one input; `layer` and `head`, from 1, say which is shown first."""
    data = attention_json(attention, layer=layer, head=head)
    size = f"{data['num_layers']} layers of {data['num_heads']} heads, {len(data['tokens'])} tokens"
    warning = "This model is untrained: its heads look almost everywhere alike." if untrained else ""
    return frame("Where BERT looks", f"Model: {model}. {size}.", attention_body(), data, warning=warning)


def attention_body(data: str = "data") -> Html:
    """The component and the call that mounts it on this expression of the page's data."""
    mount = f'<script>mountAttention(document.getElementById("attention"), {data});</script>'
    return Html(fill("attention") + mount)


def attention_json(attention: Attention, *, layer: int | None = None, head: int | None = None) -> dict[str, Any]:
    """What the component reads; without a head it begins with the mean of the layer's heads."""
    num_layers, num_heads = attention.weights.shape[:2]
    return {
        "tokens": list(attention.tokens),
        "segment_ids": [int(segment) for segment in attention.segment_ids],
        "num_layers": num_layers,
        "num_heads": num_heads,
        "layer": (layer or 1) - 1,
        "head": num_heads if head is None else head - 1,
        "weights": encode_weights(attention.weights),
    }


def encode_weights(weights: NDArray[np.float32]) -> str:
    """Weights from 0 to 1 as base64 of little-endian 16-bit numbers."""
    if weights.size > MOST_WEIGHTS:
        raise BertkitError(
            f"{weights.size:,} attention weights are too many for one page; use a shorter text, or --png"
        )
    if not np.isfinite(weights).all():
        raise BertkitError("attention weights are not finite; check the checkpoint's weights")
    scaled = np.rint(np.clip(weights, 0.0, 1.0) * 65535).astype("<u2")
    return base64.b64encode(scaled.tobytes()).decode("ascii")
