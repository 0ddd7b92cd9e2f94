"""The steps of tuning on pairs: a batch's loss, the one loop of stepping.py, and a look at dev after every epoch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertkit.model.bert import BertModel
from bertkit.model.pooling import Pooling, pool
from bertkit.tasks.sentence_pairs import Loss
from bertkit.training.objective import make_objective
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers
from bertkit.training.precision import resolve_precision
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.shuffling import ShuffledSteps
from bertkit.training.stepping import Loop, LoopOptions, Progress, Step
from bertkit.training.vectors.config import VectorTraining
from bertkit.training.vectors.data import PairBatch, PairCounts, PairData, PairFeed, score_pairs
from bertkit.training.vectors.loss import contrastive_loss, cosent_loss, mse_loss
from bertkit.training.world import World

Say = Callable[[str], None]


class VectorObjective(nn.Module):
    """A model with the loss of a batch of pairs."""

    def __init__(self, model: BertModel, loss: Loss, pooling: Pooling, scale: float) -> None:
        super().__init__()
        self.model, self.loss, self.pooling, self.scale = model, loss, pooling, scale

    def forward(self, batch: PairBatch, denominators: Tensor) -> tuple[Tensor, Tensor]:
        """The batch's mean loss, and the same for the record."""
        rows = batch.inputs.cls_rows if self.pooling == "cls" else None
        hidden = self.model.encoder(batch.inputs, rows=rows)
        vectors = pool(hidden, batch.inputs, self.pooling).float()
        num = len(batch.first)
        loss = self._loss(vectors[:num], vectors[num:], batch) / denominators[0]
        return loss, loss.detach()[None]

    def _loss(self, first: Tensor, candidates: Tensor, batch: PairBatch) -> Tensor:
        if self.loss == "contrastive":
            return contrastive_loss(first, candidates, batch.known, self.scale)
        cosines = torch.cosine_similarity(first, candidates[: len(first)])
        return (
            cosent_loss(cosines, batch.scores, self.scale) if self.loss == "cosent" else mse_loss(cosines, batch.scores)
        )


@dataclass(frozen=True)
class VectorRecord:
    """What a step saw."""

    step: int
    loss: float
    grad_norm: float
    learning_rate: float


class VectorLoop(Loop[PairBatch, PairCounts, VectorRecord]):
    """The loop, with a record of the loss."""

    @staticmethod
    def add_counts(counts: Iterable[PairCounts]) -> PairCounts:
        """A step is one micro-batch."""
        rows = [(count.num_pairs, count.num_tokens) for count in counts]
        return PairCounts(*(sum(column) for column in zip(*rows, strict=True)))

    def make_record(self, step: Step[PairCounts], sums: list[float]) -> VectorRecord:
        """The mean loss."""
        return VectorRecord(step.step, sums[0], step.grad_norm, step.learning_rate)


def run_epochs(
    model: BertModel, data: PairData, dev: PairData, loss: Loss, pooling: Pooling, config: VectorTraining, say: Say
) -> list[dict[str, float]]:
    """Train; the model is left as it was in its best epoch. One row of figures an epoch comes back, 0 is before."""
    order = ShuffledSteps(len(data), min(config.batch_size, len(data)), config.seed)
    every = order.steps_an_epoch
    history: list[dict[str, float]] = []
    losses: list[float] = []
    kept: dict[str, Tensor] = {}

    def look(step: int) -> None:
        scores = score_pairs(model, dev, pooling)
        name, score = next(iter(scores.items()))
        mean = {"loss": sum(losses[-every:]) / every} if losses else {}
        if step and all(score >= row[name] for row in history[1:]):
            kept.update({key: tensor.detach().clone() for key, tensor in model.state_dict().items()})
        history.append({"epoch": step // every, **mean, **scores})
        say(
            f"epoch {step // every}: "
            + ", ".join(f"{key} {value:.4f}" for key, value in history[-1].items() if key != "epoch")
        )

    device = model.device
    dtype = torch.bfloat16 if resolve_precision("auto", device) == "bfloat16" else None
    rates = OptimizerConfig(learning_rate=config.learning_rate, weight_decay=config.weight_decay)
    look(0)
    VectorLoop(
        objective=make_objective(VectorObjective(model, loss, pooling, config.scale), dtype),
        feeds=[PairFeed(data, order)],
        plan=order,
        optimizers=build_optimizers(model, rates),
        schedule=ScheduleConfig(warmup_share=config.warmup_share),
        options=LoopOptions(log_every=every, seed=config.seed),
        progress=Progress(config.epochs * every),
        world=World(device=device),
    ).run(
        lambda records: losses.extend(record.loss for record in records),
        is_due=lambda step: step % every == 0,
        on_due=look,
    )
    model.load_state_dict(kept)
    return history
