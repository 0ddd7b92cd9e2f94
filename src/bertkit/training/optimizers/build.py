"""AdamW, LAMB or Muon over a BertModel's parameters: which decay, which belong together, and their state by name.

AdamW is torch's own: decoupled decay, bias-corrected, none on biases and LayerNorms (section A.2 of the paper).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from bertkit.errors import BertkitError
from bertkit.training.optimizers.lamb import Lamb
from bertkit.training.optimizers.muon import SCALES, MatrixScale, Muon
from bertkit.training.sharding import is_shard, local_part, shard_like

OptimizerName = Literal["adamw", "lamb", "muon"]
OPTIMIZERS: tuple[OptimizerName, ...] = ("adamw", "lamb", "muon")
NUM_QKV = 3
OTHER_RATES = ("matrix_learning_rate", "pooler_learning_rate")
POOLER = ("pooler.", "nsp.")
Named = tuple[str, nn.Parameter]


@dataclass(frozen=True)
class OptimizerConfig:
    """The defaults are the paper's, but for a rate that suits small models."""

    name: OptimizerName = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    momentum: float = 0.95  # of Muon
    matrix_learning_rate: float | None = None  # of Muon's matrices; None: as learning_rate
    matrix_weight_decay: float | None = None  # likewise; times the matrices' own rate
    matrix_scale: MatrixScale = "adamw"  # what a rate means for Muon's matrices: see muon.py
    pooler_learning_rate: float | None = None  # of the pooler and the NSP head; None: likewise
    clip_norm: float = 1.0  # 0: no clipping

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise BertkitError(f"unknown optimizer {self.name!r}; choose one of {', '.join(OPTIMIZERS)}")
        if self.matrix_scale not in SCALES:
            raise BertkitError(
                f"unknown optimizer.matrix_scale {self.matrix_scale!r}; choose one of {', '.join(SCALES)}"
            )
        for name in ("beta1", "beta2", "momentum"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise BertkitError(f"optimizer.{name} is {getattr(self, name)}; it must be at least 0 and below 1")
        for name in ("learning_rate", "weight_decay", *OTHER_RATES, "matrix_weight_decay", "epsilon", "clip_norm"):
            if not 0.0 <= (getattr(self, name) or 0.0) < math.inf:
                raise BertkitError(f"optimizer.{name} is {getattr(self, name)}; it must be finite and not negative")
        if self.name == "lamb" and self.pooler_learning_rate is not None:
            raise BertkitError("optimizer.pooler_learning_rate is for adamw and muon; LAMB sets each layer's own pace")


def build_optimizers(model: nn.Module, config: OptimizerConfig) -> list[Optimizer]:
    """One optimizer, or with Muon two; each group remembers its peak rate."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if config.name == "muon":
        matrices = [(name, p) for name, p in named if is_encoder_matrix(name, p)]
        others = [(name, p) for name, p in named if not is_encoder_matrix(name, p)]
        made: list[Optimizer] = [_muon(matrices, config), _adamw(others, config)]
    else:
        made = [_lamb(named, config) if config.name == "lamb" else _adamw(named, config)]
    for optimizer in made:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return made


def is_encoder_matrix(name: str, p: Tensor) -> bool:
    """Whether this is one of the layers' matrices: no embedding, no head, no bias."""
    return "encoder.layers." in name and p.dim() == 2


def is_fused(name: str) -> bool:
    """Whether query, key and value lie in this one matrix."""
    return name.endswith("qkv.weight")


def _split_decay(named: Sequence[Named]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    return [p for _, p in named if p.dim() > 1], [p for _, p in named if p.dim() <= 1]


def _adamw(named: Sequence[Named], config: OptimizerConfig) -> AdamW:
    own = config.learning_rate if config.pooler_learning_rate is None else config.pooler_learning_rate
    pooler = [(name, p) for name, p in named if name.startswith(POOLER)]
    rest = [(name, p) for name, p in named if not name.startswith(POOLER)]
    groups = []
    for part, rate in ((rest, config.learning_rate), (pooler, own)):
        matrices, vectors = _split_decay(part)
        groups += [{"params": matrices, "lr": rate, "weight_decay": config.weight_decay}]
        groups += [{"params": vectors, "lr": rate, "weight_decay": 0.0}]
    betas = (config.beta1, config.beta2)
    return AdamW(groups, betas=betas, eps=config.epsilon, fused=True)


def _lamb(named: Sequence[Named], config: OptimizerConfig) -> Lamb:
    fused = [p for name, p in named if is_fused(name)]
    matrices, vectors = _split_decay([(name, p) for name, p in named if not is_fused(name)])
    groups: list[dict[str, Any]] = [
        {"params": fused, "num_parts": NUM_QKV},
        {"params": matrices},
        {"params": vectors, "weight_decay": 0.0, "adapt": False},
    ]
    return Lamb(groups, config.learning_rate, (config.beta1, config.beta2), config.epsilon, config.weight_decay)


def _muon(named: Sequence[Named], config: OptimizerConfig) -> Muon:
    rate = config.learning_rate if config.matrix_learning_rate is None else config.matrix_learning_rate
    decay = config.weight_decay if config.matrix_weight_decay is None else config.matrix_weight_decay
    fused, plain = [p for name, p in named if is_fused(name)], [p for name, p in named if not is_fused(name)]
    groups: list[dict[str, Any]] = [{"params": fused, "num_parts": NUM_QKV}, {"params": plain}]
    return Muon(groups, rate, config.momentum, decay, config.matrix_scale)


def set_rate(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Every group's rate as a share of its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float) -> Tensor:
    """Scale gradients down to a global norm; the norm comes back on its device, and the host waits for nothing."""
    found = [p.grad for p in parameters if p.grad is not None]
    grads = [local_part(grad) for grad in found]
    norm = torch.nn.utils.get_total_norm(grads, foreach=True)
    if found and is_shard(found[0]):  # shards: every process adds the part that it has
        squared = norm.square()
        dist.all_reduce(squared, group=found[0].device_mesh.get_group())
        norm = squared.sqrt()
    if max_norm > 0.0:
        torch._foreach_mul_(grads, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm


def export_state(optimizers: Sequence[Optimizer], model: nn.Module) -> dict[str, Tensor]:
    """Every tensor of the optimizers' state, named `parameter/key`."""
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    return {
        f"{names[p]}/{key}": value
        for optimizer in optimizers
        for p, state in optimizer.state.items()
        for key, value in state.items()
    }


def import_state(optimizers: Sequence[Optimizer], model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """The reverse, whole or in shards; the state of a parameter that has none stays empty."""
    names = {p: name for name, p in model.named_parameters()}
    by_name: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, part = key.rpartition("/")
        by_name.setdefault(name, {})[part] = tensor
    for optimizer in optimizers:
        ordered = [p for group in optimizer.param_groups for p in group["params"]]
        plain = optimizer.state_dict()
        plain["state"] = {
            i: {part: shard_like(tensor, p) for part, tensor in by_name[names[p]].items()}
            for i, p in enumerate(ordered)
            if names[p] in by_name
        }
        optimizer.load_state_dict(plain)
    known = {names[p] for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    if missing := sorted(known ^ set(by_name)) if by_name else []:
        raise BertkitError(f"the optimizer's state is another model's: {missing[0]} does not match; check the recipe")
