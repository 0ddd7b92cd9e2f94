"""How a fresh encoder begins: layers as the paper's, silent, or by DeepNorm; positions drawn, as waves, or repeated.

In: a BertModel fresh from its constructor. Out: the same, those weights made anew; the architecture stays BERT. Deep
post-LayerNorm stacks sit on the unigram plateau when their sublayers speak too loudly at first. What ends the plateau
is a head that finds its neighbours: drawn positions have to be learned one by one for that, waves have it in common.
Where a later stage has longer rows, repeated positions take there what the first ones have learned.
"""

import math
from typing import Literal, cast

import torch
from torch import Tensor, nn

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.encoder import Layer
from bertkit.training.sharding import gather, shard_like

Start = Literal["paper", "zero", "deepnorm"]
STARTS: tuple[Start, ...] = ("paper", "zero", "deepnorm")
Positions = Literal["drawn", "waves", "repeated"]
POSITIONS: tuple[Positions, ...] = ("drawn", "waves", "repeated")
LONGEST_WAVE = 1000.0  # positions in a radian
LOUDNESS = 12.0  # of the waves, in the deviation with which tokens are drawn


def check_start(start: str, positions: str, init: str) -> None:
    """Refuse what cannot be, in one line."""
    for key, value, choices in (("start", start, STARTS), ("positions", positions, POSITIONS)):
        if value not in choices:
            raise BertkitError(f"unknown model.{key} {value!r}; choose one of {', '.join(choices)}")
        if init and value != choices[0]:
            raise BertkitError(
                f"model.{key} = {value!r} is for fresh models, and model.init names a checkpoint; remove one"
            )


@torch.no_grad()
def begin_with_waves(model: BertModel) -> None:
    """Position vectors begin as the sines and cosines of Vaswani et al. 2017; they are learned like any other."""
    weight_PD = model.encoder.embeddings.position.weight
    num_positions, width = weight_PD.shape
    places = torch.arange(num_positions)[:, None]
    turns = torch.exp(torch.arange(0, width, 2) * (-math.log(LONGEST_WAVE) / width))
    weight_PD[:, 0::2] = torch.sin(places * turns)
    weight_PD[:, 1::2] = torch.cos(places * turns)[:, : width // 2]
    weight_PD.mul_(LOUDNESS * model.config.initializer_range)


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


@torch.no_grad()
def repeat_positions(table: Tensor, known: int) -> None:
    """Positions from `known` on, which no row has reached yet, become copies of 0 .. known - 1, again and again."""
    learned = gather(table)
    table.copy_(shard_like(learned[torch.arange(len(learned), device=learned.device) % known], table))
