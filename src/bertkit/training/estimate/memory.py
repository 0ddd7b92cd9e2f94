"""What a training step holds in memory and what its checkpoints take on disk, by counting; nothing is run.

Activations are what autograd keeps of this encoder: 17 times the width a token and layer (query, key, value, both
residuals, the feed-forward twice), more where attention pads or writes out its weights. One process, not sharded.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bertkit.model.attention import supports_varlen
from bertkit.model.config import BertConfig, num_parameters
from bertkit.training.optimizers.build import OptimizerConfig
from bertkit.training.plan import Stage

FLOAT, HALF, BYTE = 4, 2, 1
LINEAR_PARTS = 13  # widths a token and layer outside of attention
ATTENTION_PARTS = 4  # query, key, value and the mixed values
DROPOUTS = 2  # masks a layer, each as wide as the model
WRITTEN_OUT = 3  # matrices of attention weights that are kept where no fused kernel has dropout
PADDING = 1.15  # places a token when packed sequences are padded for attention
LOGITS = 3  # copies of the MLM logits at the peak: themselves, their log-softmax, their gradient
POINTED, WRITING = 1, 1  # the best checkpoint may be an old one, and one is being written beside those kept
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Memory:
    """Bytes of one process."""

    parameters: int
    gradients: int
    optimizer: int
    copies: int  # the narrow weights and their gradients
    activations: int
    logits: int

    @property
    def total(self) -> int:
        """All of it at once."""
        return sum(self.__dict__.values())

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {**self.__dict__, "total": self.total}


def step_memory(
    config: BertConfig, optimizer: OptimizerConfig, stage: Stage, device: torch.device, *, half: bool
) -> Memory:
    """Of a step with this stage's micro-batches."""
    num, width = num_parameters(config), HALF if half else FLOAT
    masked = stage.masking.rate * stage.tokens_per_batch
    elements = activation_elements(config, stage, device, half=half)
    return Memory(
        parameters=FLOAT * num,
        gradients=FLOAT * num,
        optimizer=optimizer_bytes(config, optimizer),
        copies=2 * HALF * num if half else 0,
        activations=round(elements * width),
        logits=round(LOGITS * FLOAT * masked * config.vocab_size) if "mlm" in config.heads else 0,
    )


def activation_elements(config: BertConfig, stage: Stage, device: torch.device, *, half: bool) -> float:
    """Numbers that a forward pass keeps for the backward pass, without the logits."""
    tokens, hidden = stage.tokens_per_batch, config.hidden_size
    rows = (
        stage.masking.rate * tokens + tokens / stage.max_length
    )  # masked and [CLS] rows: all that the last layer needs
    dropout = DROPOUTS * hidden * (1 if device.type == "cpu" else 1 / FLOAT) * (config.hidden_dropout > 0)
    attention = _attention_elements(config, stage, device, half=half)
    after = (LINEAR_PARTS - 2) * hidden + dropout  # all but the layer's input and what attention gave
    layers = config.num_layers * tokens * (2 * hidden + attention)
    layers += ((config.num_layers - 1) * tokens + rows) * after
    return layers + tokens * (hidden + dropout / 2) + 4 * rows * hidden  # embeddings, and the heads' own rows


def _attention_elements(config: BertConfig, stage: Stage, device: torch.device, *, half: bool) -> float:
    """A token and layer."""
    hidden = config.hidden_size
    if half and supports_varlen(device, torch.bfloat16):
        return ATTENTION_PARTS * hidden + config.num_heads
    if device.type == "cpu" and config.attention_dropout > 0:  # the CPU's fused attention has no dropout
        return PADDING * ((ATTENTION_PARTS - 1) * hidden + WRITTEN_OUT * config.num_heads * stage.max_length)
    return PADDING * ATTENTION_PARTS * hidden


def optimizer_bytes(config: BertConfig, optimizer: OptimizerConfig) -> int:
    """Two moments a weight; of Muon's matrices one."""
    num = num_parameters(config)
    matrices = config.num_layers * (4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size)
    return FLOAT * (2 * num - (matrices if optimizer.name == "muon" else 0))


def checkpoint_bytes(config: BertConfig, optimizer: OptimizerConfig) -> int:
    """One checkpoint: weights and the optimizer's state."""
    return FLOAT * num_parameters(config) + optimizer_bytes(config, optimizer)


def disk_bytes(config: BertConfig, optimizer: OptimizerConfig, num_kept: int) -> int:
    """The checkpoints kept, the best, the one being written, and the model at the end."""
    num = num_kept + POINTED + WRITING
    return num * checkpoint_bytes(config, optimizer) + FLOAT * num_parameters(config)


def fitting_tokens(
    config: BertConfig, optimizer: OptimizerConfig, stage: Stage, device: torch.device, room: int, *, half: bool
) -> int | None:
    """The largest halving of tokens_per_batch whose step fits, or None where not even one sequence does."""
    tokens = stage.tokens_per_batch
    while tokens >= stage.max_length:
        smaller = replace(stage, tokens_per_batch=tokens)
        if step_memory(config, optimizer, smaller, device, half=half).total <= room:
            return tokens
        tokens //= 2
    return None


def available_memory(device: torch.device) -> int:
    """Bytes that a run may take here: free on the GPU, or available to this process on the machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    limits = [_meminfo(), *(_number(Path(name)) for name in CGROUP_LIMITS)]
    return min(limit for limit in limits if limit is not None)


def _meminfo() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(found.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):  # no Linux: what the machine has in all
        import os

        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # not there, or "max"
        return None
