"""The loss of a micro-batch as its share of the global step's loss, and what the journal wants to know of it.

Sum of MLM losses / masked tokens of the step + sum of NSP losses / pairs of the step: however a step is cut into
micro-batches and processes, the gradients add up to the same.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bertkit.model.bert import BertModel
from bertkit.tasks.pretraining import PretrainingBatch, pretraining_losses

NUM_SUMS = 4  # MLM loss, NSP loss, MLM correct, NSP correct


class Objective(nn.Module):
    """A model with its loss; DistributedDataParallel and torch.compile wrap this."""

    def __init__(self, model: BertModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: PretrainingBatch, counts_2: Tensor) -> tuple[Tensor, Tensor]:
        """The loss's share, and sums [4] for the journal; counts are the masked tokens and pairs of the global step."""
        losses = pretraining_losses(self.model, batch)
        loss = losses.mlm_sum / counts_2[0] + losses.nsp_sum / counts_2[1]
        return loss, torch.stack(
            [
                losses.mlm_sum.detach().float(),
                losses.nsp_sum.detach().float(),
                _num_correct(losses.mlm_logits, batch.masked_token_ids),
                _num_correct(losses.nsp_logits, batch.next_labels),
            ]
        )


class HalfPrecision(nn.Module):
    """Any objective in 16 bits throughout; the weights stay float32, and so do the gradients that add up on them."""

    def __init__(self, objective: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.objective, self.dtype = objective, dtype

    def forward(self, batch: Any, denominators: Tensor) -> tuple[Tensor, Tensor]:
        """As the objective's own, on narrow copies of the weights."""
        narrow = {name: p.to(self.dtype) for name, p in self.objective.named_parameters()}
        result: tuple[Tensor, Tensor] = functional_call(self.objective, narrow, (batch, denominators))
        return result


def make_objective(objective: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """An objective whose products are of this type; None: float32."""
    return objective if dtype is None else HalfPrecision(objective, dtype)


def _num_correct(logits: Tensor, targets: Tensor) -> Tensor:
    if not logits.numel():
        return logits.new_zeros((), dtype=torch.float32)
    return (logits.detach().argmax(-1) == targets).sum().float()
