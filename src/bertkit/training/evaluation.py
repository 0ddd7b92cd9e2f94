"""How a model does on held-out text: MLM loss, accuracy and perplexity, NSP accuracy; sums only, never all logits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bertkit.errors import BertkitError
from bertkit.training.feeds import Feed, sum_counts
from bertkit.training.objective import NUM_SUMS
from bertkit.training.sharding import settle
from bertkit.training.world import World


@dataclass(frozen=True)
class EvaluationConfig:
    """How often, and on how much text."""

    every_steps: int = 1000  # 0: only before the first step and after the last
    num_batches: int = 32

    def __post_init__(self) -> None:
        if self.every_steps < 0 or self.num_batches < 1:
            raise BertkitError("evaluation: every_steps must be at least 0 and num_batches at least 1")


def evaluation_indices(feed: Feed, config: EvaluationConfig) -> range:
    """The micro-batches to measure: as many as asked for, or all that there are."""
    return range(min(config.num_batches, getattr(feed, "epoch_size", config.num_batches)))


@dataclass(frozen=True)
class Evaluation:
    """One measurement on held-out text."""

    mlm_loss: float
    mlm_accuracy: float
    nsp_loss: float
    nsp_accuracy: float
    num_masked: int
    num_pairs: int

    @property
    def perplexity(self) -> float:
        """e to the MLM loss."""
        return math.exp(min(self.mlm_loss, 700.0))

    @property
    def loss(self) -> float:
        """What best is judged by."""
        return self.mlm_loss + self.nsp_loss

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return {**self.__dict__, "perplexity": self.perplexity}


@torch.no_grad()
def evaluate(objective: nn.Module, feed: Feed, indices: Sequence[int], world: World) -> Evaluation:
    """Measure these micro-batches, shared among the processes, dropout off; the model's mode is left as it was."""
    was_training = objective.training
    objective.eval()
    counts = sum_counts(feed.counts(index) for index in indices)
    ones = torch.ones(2, device=world.device)
    sums = torch.zeros(NUM_SUMS, dtype=torch.float64, device=world.device)
    for turn in range(world.rank, -(-len(indices) // world.size) * world.size, world.size):
        # Sharded weights are gathered by all processes together, so each makes as many turns; the last may not count.
        batch = feed.micro_batch(indices[min(turn, len(indices) - 1)])
        sums += objective(batch.to(world.device), ones)[1] * (turn < len(indices))
    settle(objective)
    mlm, nsp, mlm_correct, nsp_correct = world.sum(sums).tolist()
    objective.train(was_training)
    masked, pairs = max(1, counts.num_masked), max(1, counts.num_pairs)
    return Evaluation(
        mlm_loss=mlm / masked,
        mlm_accuracy=mlm_correct / masked,
        nsp_loss=nsp / pairs,
        nsp_accuracy=nsp_correct / pairs,
        num_masked=counts.num_masked,
        num_pairs=counts.num_pairs,
    )
