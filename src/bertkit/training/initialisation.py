"""How a fresh encoder begins: layers as the paper's, silent, or by DeepNorm; positions drawn, beside, or repeated.

In: a BertModel fresh from its constructor. Out: the same, those weights made anew; the architecture stays BERT. Deep
post-LayerNorm stacks sit on the unigram plateau when their sublayers speak too loudly at first, and every size sits
there until a head finds the words beside a masked one; heads may begin by looking there. Where a later stage has longer
rows, repeated positions take there what the first ones have learned.
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
Positions = Literal["drawn", "beside", "repeated"]
POSITIONS: tuple[Positions, ...] = ("drawn", "beside", "repeated")
SHARE = 8  # one dimension in so many belongs to the waves
FASTEST, SLOWEST = 2.0, 0.02  # radians from a place to the next
LOUDNESS = 3.0  # of the waves, in the deviation with which tokens are drawn
SHARPNESS = 25.0  # the score of the place that a head begins by looking at; far from it scores are about 0


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
def look_beside(model: BertModel) -> None:
    """Half of the first layer's heads begin by looking one place before, one after, two before, and so on.

    Positions are sines and cosines (Vaswani et al. 2017) in dimensions where tokens begin at zero, and nothing else. A
    step to the side turns every wave by the same angle wherever it is taken, so one matrix makes a query of the place
    beside. All of it is learned on from there.
    """
    first, embeddings = cast(Layer, model.encoder.layers[0]), model.encoder.embeddings
    hidden, num_heads = model.config.hidden_size, first.num_heads
    head_size = hidden // num_heads
    if head_size < 2:
        raise BertkitError("model.positions = 'beside' needs heads that are 2 wide or more; choose fewer heads")
    num_waves = max(1, min(hidden // SHARE, head_size) // 2)
    speeds_W = torch.linspace(math.log(FASTEST), math.log(SLOWEST), num_waves).exp()
    angles_PW = torch.arange(len(embeddings.position.weight))[:, None] * speeds_W
    waves = slice(0, 2 * num_waves)
    embeddings.token.weight[:, waves] = 0.0
    embeddings.segment.weight[:, waves] = 0.0
    embeddings.position.weight.zero_()
    circles = torch.cat([angles_PW.cos(), angles_PW.sin()], 1)
    embeddings.position.weight[:, waves] = LOUDNESS * model.config.initializer_range * circles

    # What LayerNorm leaves of a wave, and so how large queries and keys have to be.
    variance = (hidden - 2 * num_waves + num_waves * LOUDNESS**2) / hidden
    size = (SHARPNESS * head_size**0.5 * variance / (num_waves * LOUDNESS**2)) ** 0.5
    queries, keys, _ = first.qkv.weight.view(3, num_heads, head_size, hidden)
    for head, offset in enumerate(_offsets(min(num_heads, max(2, num_heads // 2)), is_causal=model.config.is_causal)):
        cosines, sines = torch.diag(torch.cos(offset * speeds_W)), torch.diag(torch.sin(offset * speeds_W))
        queries[head], keys[head] = 0.0, 0.0
        queries[head, waves, waves] = size * torch.cat(
            [torch.cat([cosines, -sines], 1), torch.cat([sines, cosines], 1)]
        )
        keys[head, waves, waves] = size * torch.eye(2 * num_waves)


def _offsets(num: int, *, is_causal: bool) -> list[int]:
    """-1, 1, -2, 2, and so on; left to right, where what comes after is hidden, -1, -2."""
    if is_causal:
        return [-1 - i for i in range(num)]
    return [(1 + i // 2) * (1 if i % 2 else -1) for i in range(num)]


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
