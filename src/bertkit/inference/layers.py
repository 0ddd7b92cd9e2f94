"""Which layers' vectors are taken, and how they become one (table 7 of the paper, section 5.3).

In: the embedding output and every layer's output. Out: one tensor of [T, D], or [T, K D] where K layers lie side by
side. `weighted-...` also lies side by side: the weights of the sum are learned by the head that reads the features.
"""

import re
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bertkit.errors import BertkitError

LayerChoice = int | str  # a number, a name, or how to join how many
Join = Literal["mean", "sum", "concat", "weighted"]
NAMED = {"embeddings": 0, "last": -1, "second-to-last": -2}
JOINED = re.compile(r"(mean|sum|concat|weighted)-(?:(all)|last-([1-9]\d{0,3}))")
NUMBER_WORDS = {2: "two", 3: "three", 4: "four"}


@dataclass(frozen=True)
class Layers:
    """A choice, understood: one layer by number, or several joined."""

    one: int | None = None
    join: Join = "mean"
    last: int | None = None  # how many, counted from the top; None: every layer, without the embeddings

    @property
    def is_side_by_side(self) -> bool:
        """Whether the layers stay apart, one after another in a wide vector."""
        return self.one is None and self.join in ("concat", "weighted")

    def num_joined(self, num_layers: int) -> int:
        """How many layers go into the vector."""
        return 1 if self.one is not None else self.last or num_layers


def read_layer(choice: LayerChoice) -> Layers:
    """What a number or name means."""
    if isinstance(choice, int):
        return Layers(one=choice)
    if choice in NAMED:
        return Layers(one=NAMED[choice])
    found = JOINED.fullmatch(choice)
    if found is None:
        raise BertkitError(
            f"unknown layer {choice!r}; give a number, {', '.join(NAMED)}, or mean-, sum- or concat- with last-4 or all"
        )
    join: Join = found[1]  # type: ignore[assignment]  # the pattern allows these alone
    return Layers(join=join, last=None if found[2] else int(found[3]))


def check_layer(choice: LayerChoice, num_layers: int) -> Layers:
    """The choice understood, or an error where this model does not have these layers."""
    layers = read_layer(choice)
    if layers.one is not None and not -num_layers - 1 <= layers.one <= num_layers:
        raise BertkitError(f"no layer {choice}: this model has 0 (embeddings) to {num_layers}, or -1 for the last")
    if (needed := layers.num_joined(num_layers)) > num_layers:
        words = NUMBER_WORDS.get(needed, str(needed))
        raise BertkitError(f"{choice!r} needs {words} layers and this model has {num_layers}; give a layer's number")
    return layers


def layer_width(choice: LayerChoice, num_layers: int, hidden_size: int) -> int:
    """The width of the vectors of this choice."""
    layers = check_layer(choice, num_layers)
    return hidden_size * (layers.num_joined(num_layers) if layers.is_side_by_side else 1)


def combine_layers(states: list[Tensor], choice: LayerChoice) -> Tensor:
    """One tensor out of the embedding output and all layers' outputs."""
    layers = read_layer(choice)
    if layers.one is not None:
        return states[layers.one]
    joined = states[-layers.num_joined(len(states) - 1) :]
    if layers.is_side_by_side:
        return torch.cat(joined, dim=-1)
    return torch.stack(joined).mean(0) if layers.join == "mean" else torch.stack(joined).sum(0)
