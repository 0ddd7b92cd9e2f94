"""Depth that grows while a run goes on: few layers at first, then more by copying layers.

Early steps teach what every layer needs, and shallow ones are cheap. By default the whole stack is put on top of itself
with its moments (Gong et al. 2019, who found its layers alike); the loss jumps, and is lower than where it was after a
few hundred steps. Silent copies change nothing at first: their sublayers end in zeros, and their LayerNorms give
back what they are given. A checkpoint says its depth, so a run resumes at any step.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.encoder import Layer
from bertkit.training.budget import share_done
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers, export_state, import_state
from bertkit.training.stepping import Progress

Copying = Literal["stack", "interleave", "silent"]
COPYING: tuple[Copying, ...] = ("stack", "interleave", "silent")
LAYERS = "encoder.layers."


@dataclass(frozen=True)
class GrowthConfig:
    """layers = [3, 6], until = [0.1, 0.25]: 3 layers for a tenth of the run, 6 up to a quarter, then all."""

    layers: tuple[int, ...] = ()  # empty: all from the first step
    until: tuple[float, ...] = ()  # shares of the run
    copying: Copying = "stack"  # the stack on top of itself, loud or silent, or every layer next to its copy

    def __post_init__(self) -> None:
        if len(self.layers) != len(self.until):
            raise BertkitError("growth: layers and until need as many values each, such as [3, 6] and [0.1, 0.25]")
        if list(self.layers) != sorted({*self.layers}) or any(num < 1 for num in self.layers):
            raise BertkitError(f"growth.layers is {list(self.layers)}; they must be at least 1 and rise")
        if list(self.until) != sorted({*self.until}) or any(not 0.0 < share < 1.0 for share in self.until):
            raise BertkitError(f"growth.until is {list(self.until)}; shares must lie between 0 and 1 and rise")
        if self.copying not in COPYING:
            raise BertkitError(f"unknown growth.copying {self.copying!r}; choose one of {', '.join(COPYING)}")

    def depth(self, share: float, full: int) -> int:
        """Layers when this share of the run is done."""
        return next((num for num, until in zip(self.layers, self.until, strict=True) if share < until), full)


def check_growth(growth: GrowthConfig, full: int, *, parallel: str, init: str) -> None:
    """Refuse what cannot be, in one line."""
    if not growth.layers:
        return
    if parallel == "fsdp":
        raise BertkitError("growth copies whole layers, which fsdp shards: set parallel = 'ddp', or leave growth out")
    if init:
        raise BertkitError("growth is for fresh models, and model.init names a checkpoint; remove one")
    if growth.layers[-1] >= full:
        raise BertkitError(f"growth.layers ends with {growth.layers[-1]}, and the model has {full} layers: give fewer")


@dataclass(frozen=True)
class Growth:
    """The growth of one run."""

    config: GrowthConfig
    full: int
    optimizer: OptimizerConfig

    def depth(self, progress: Progress) -> int:
        """Layers that the next step is to have."""
        return self.config.depth(share_done(progress, progress.step), self.full)

    def grow(self, model: BertModel, optimizers: Sequence[Optimizer], depth: int) -> list[Optimizer]:
        """Grow the model in place; the optimizers of all its weights come back, with moments for the new layers."""
        before = model.config.num_layers
        origins = choose_origins(before, depth, self.config.copying)
        moments = grow_state(export_state(optimizers, model), origins)
        grow_layers(model, origins)
        if self.config.copying == "silent":
            silence_layers(model, before)
            forget_layers(moments, range(before, depth))
        made = build_optimizers(model, self.optimizer)
        import_state(made, model, moments)
        return made

    def refuse_half_grown(self, model: BertModel) -> None:
        """A run too short to reach its depth leaves no model that seems whole."""
        depth = model.config.num_layers
        if depth < self.full:
            raise BertkitError(
                f"the run ended with {depth} of {self.full} layers, before its last growth: give it more steps or minutes"
            )


def choose_origins(before: int, after: int, copying: Copying) -> list[int]:
    """Which old layer each new one is a copy of."""
    return [number * before // after if copying == "interleave" else number % before for number in range(after)]


def grow_layers(model: BertModel, origins: Sequence[int]) -> None:
    """The model with these copies of its layers; the first copy of a layer is the layer itself."""
    old, seen, new = list(model.encoder.layers), set[int](), []
    for origin in origins:
        new.append(deepcopy(old[origin]) if origin in seen else old[origin])
        seen.add(origin)
    model.encoder.layers = nn.ModuleList(new)
    model.config = replace(model.config, num_layers=len(new))


def grow_state(tensors: Mapping[str, Tensor], origins: Sequence[int]) -> dict[str, Tensor]:
    """An optimizer's state by name, with each layer's as that of the layer it is a copy of."""
    grown = {name: tensor for name, tensor in tensors.items() if not name.startswith(LAYERS)}
    for number, origin in enumerate(origins):
        prefix = f"{LAYERS}{origin}."
        for name, tensor in tensors.items():
            if name.startswith(prefix):
                grown[f"{LAYERS}{number}.{name.removeprefix(prefix)}"] = tensor.clone()
    return grown


@torch.no_grad()
def silence_layers(model: BertModel, before: int) -> None:
    """The layers from `before` on become the identity, as nearly as a post-LayerNorm layer can be.

    What ends each sublayer is zero, so LayerNorm has what entered the layer: g n + b, n normalised. Its deviation over
    the channels is sqrt(mean(g^2) + var(b)) for every token, or nearly, and its mean that of b: LayerNorms with these
    as their weight and bias undo what they do.
    """
    layers = cast(list[Layer], list(model.encoder.layers))
    norm = layers[before - 1].output_norm
    deviation = (norm.weight.square().mean() + norm.bias.var(correction=0)).sqrt()
    for layer in layers[before:]:
        for linear in (layer.attention_output, layer.down):
            linear.weight.zero_()
            linear.bias.zero_()
        for undone in (layer.attention_norm, layer.output_norm):
            undone.weight.copy_(deviation)
            undone.bias.copy_(norm.bias.mean())


def forget_layers(tensors: Mapping[str, Tensor], numbers: Sequence[int]) -> None:
    """Set these layers' moments to zero; how many steps were taken stays."""
    prefixes = tuple(f"{LAYERS}{number}." for number in numbers)
    for name, tensor in tensors.items():
        if name.startswith(prefixes) and not name.endswith("/step"):
            tensor.zero_()
