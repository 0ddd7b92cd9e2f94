"""How much memory fine-tuning will take, by counting, before anything runs; and how many tokens at once fit."""

from dataclasses import dataclass

import torch

from bertkit.model.budgets import TRAINING
from bertkit.model.config import BertConfig
from bertkit.training.estimate.memory import Memory, available_memory, fitting_tokens, step_memory
from bertkit.training.optimizers.build import OptimizerConfig
from bertkit.training.plan import Stage

USED_SHARE = 0.85  # of the free memory; the rest is for the allocator's gaps
SHORTEST = 8  # tokens of the shape that is counted
GIB = 2**30


@dataclass(frozen=True)
class FinetuneMemory:
    """What a run will hold at most."""

    step: Memory
    micro_tokens: int
    available_bytes: int

    def line(self) -> str:
        """For people."""
        total, activations = self.step.total / GIB, self.step.activations / GIB
        too_much = self.step.total > self.available_bytes
        remedy = "; that is more than there is: lower max_length, or take a smaller model" if too_much else ""
        return (
            f"estimated memory: {total:.2f} of {self.available_bytes / GIB:.1f} GiB (weights, gradients and Adam "
            f"{total - activations:.2f}, activations {activations:.2f}); at most {self.micro_tokens:,} tokens at once{remedy}"
        )


def estimate_memory(
    config: BertConfig,
    optimizer: OptimizerConfig,
    longest: int,
    step_tokens: int,
    device: torch.device,
    *,
    half: bool,
    micro_tokens: int = 0,
) -> FinetuneMemory:
    """For sequences of up to `longest` tokens and steps of up to `step_tokens`; the micro-batch is chosen if it is 0."""
    longest, free = max(SHORTEST, longest), available_memory(device)
    if not micro_tokens:
        micro_tokens = TRAINING.on(device)
        if device.type == "cuda":
            most = Stage(longest, max(longest, min(micro_tokens, step_tokens)))
            room = int(USED_SHARE * free)
            micro_tokens = fitting_tokens(config, optimizer, most, device, room, half=half) or longest
    micro_tokens = max(longest, micro_tokens)
    stage = Stage(longest, max(longest, min(micro_tokens, step_tokens)))
    return FinetuneMemory(step_memory(config, optimizer, stage, device, half=half), micro_tokens, free)
