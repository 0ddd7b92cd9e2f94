"""The training loop: batches in, a trained model and the journal of its losses out.

AdamW as the original code has it: decoupled decay, none on biases and LayerNorms, linear warm-up and linear decay,
gradients clipped to norm 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.tasks.pretraining import PretrainingBatch, pretraining_losses


@dataclass(frozen=True)
class TrainingConfig:
    """One run. The defaults suit tiny models; the paper's own are rate 1e-4 and 10,000 warm-up steps."""

    num_steps: int
    learning_rate: float = 1e-3
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    beta2: float = 0.999
    clip_norm: float = 1.0

    def rate(self, step: int) -> float:
        """The learning rate of step 0, 1, ...: up to the peak in the warm-up, then down to zero."""
        warmup = max(1, round(self.warmup_share * self.num_steps))
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        return self.learning_rate * (self.num_steps - step) / max(1, self.num_steps - warmup)


@dataclass(frozen=True)
class StepRecord:
    """What one step saw."""

    step: int
    mlm_loss: float
    nsp_loss: float

    @property
    def loss(self) -> float:
        """The sum that was minimised."""
        return self.mlm_loss + self.nsp_loss


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices alone."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, config.beta2), eps=1e-6)


def pretrain(
    model: BertModel,
    batches: Iterator[PretrainingBatch],
    config: TrainingConfig,
    on_step: Callable[[StepRecord], None] | None = None,
) -> list[StepRecord]:
    """Train for config.num_steps batches; the model is left in evaluation mode."""
    optimizer = make_optimizer(model, config)
    model.train()
    journal = []
    for step in range(config.num_steps):
        for group in optimizer.param_groups:
            group["lr"] = config.rate(step)
        record = _train_step(model, next(batches), optimizer, config, step)
        journal.append(record)
        if on_step:
            on_step(record)
    model.eval()
    return journal


def _train_step(
    model: BertModel, batch: PretrainingBatch, optimizer: torch.optim.AdamW, config: TrainingConfig, step: int
) -> StepRecord:
    num_masked, num_pairs = batch.masked_token_ids.shape[0], len(batch.inputs)
    losses = pretraining_losses(model, batch)
    optimizer.zero_grad(set_to_none=True)
    loss = losses.total(num_masked, num_pairs)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
    if not torch.isfinite(loss):
        raise BertkitError(f"the loss is {loss.item()} at step {step}; lower the learning rate")
    optimizer.step()
    return StepRecord(step, losses.mlm_sum.item() / num_masked, losses.nsp_sum.item() / num_pairs)
