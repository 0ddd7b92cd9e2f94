"""How fresh encoder layers begin: as the paper's, with silent sublayers, or by DeepNorm. The architecture stays BERT.

In: a BertModel fresh from its constructor. Out: the same, its layers' matrices drawn anew. Deep post-LayerNorm stacks
sit on the unigram plateau when their sublayers speak too loudly at first; both ways make them quiet.
"""

from typing import Literal, cast

import torch
from torch import nn

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.encoder import Layer

Start = Literal["paper", "zero", "deepnorm"]
STARTS: tuple[Start, ...] = ("paper", "zero", "deepnorm")


def check_start(start: str, init: str) -> None:
    """Refuse what cannot be, in one line."""
    if start not in STARTS:
        raise BertkitError(f"unknown model.start {start!r}; choose one of {', '.join(STARTS)}")
    if init and start != "paper":
        raise BertkitError(
            f"model.start = {start!r} is for fresh models, and model.init names a checkpoint; remove one"
        )


@torch.no_grad()
def initialise(model: BertModel, start: Start, num_layers: int | None = None) -> None:
    """Draw the layers' matrices anew; num_layers is the depth that the model will have when it is grown."""
    layers = cast(list[Layer], list(model.encoder.layers))
    if start == "zero":
        for layer in layers:
            nn.init.zeros_(layer.attention_output.weight)
            nn.init.zeros_(layer.down.weight)
    elif start == "deepnorm":
        depth = num_layers or len(layers)
        for layer in layers:
            _deepnorm(layer, residual=(2 * depth) ** 0.25, gain=(8 * depth) ** -0.25)


def _deepnorm(layer: Layer, *, residual: float, gain: float) -> None:
    """Wang et al. 2022, encoder alone: LN(a x + f) equals LN(x + f / a), so a goes into what ends each sublayer."""
    query, key, value = layer.qkv.weight.chunk(3)
    for matrix in (query, key):
        nn.init.xavier_normal_(matrix)
    for matrix in (value, layer.attention_output.weight, layer.up.weight, layer.down.weight):
        nn.init.xavier_normal_(matrix, gain=gain)
    for matrix in (layer.attention_output.weight, layer.down.weight):
        matrix.div_(residual)
