"""A few steps on one batch, which every task must be able to learn by heart."""

from typing import Any

import torch

from bertkit.model import BertModel
from bertkit.tasks.task import Item, Task, collate


def learn_by_heart(task: Task[Any, Any], model: BertModel, items: list[Item], *, steps: int, rate: float) -> float:
    """Train on these items alone, without dropout; the last loss a target comes back."""
    model.eval()
    model.encoder.embeddings.token.weight.requires_grad_(False)  # most of a small model, and of the time
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=rate)
    batch, count = collate(items), sum(task.num_targets(item) for item in items)
    loss = torch.tensor(0.0)
    for _ in range(steps):
        loss = task.loss_sum(task.logits(model, batch), batch) / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())
