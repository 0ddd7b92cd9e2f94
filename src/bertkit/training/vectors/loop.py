"""The steps of tuning on pairs: a batch's loss, the one loop of stepping.py, and a look at dev after every epoch."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor, nn

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.pooling import Pooling, pool
from bertkit.tasks.sentence_pairs import Loss
from bertkit.training.checkpoints import CheckpointFolder
from bertkit.training.loss_loop import LossLoop, LossRecord
from bertkit.training.objective import make_objective
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers, export_state, import_state
from bertkit.training.precision import resolve_precision
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.shuffling import ShuffledSteps
from bertkit.training.stepping import LoopOptions, Progress
from bertkit.training.used_rows import UsedRows
from bertkit.training.vectors.config import VectorTraining
from bertkit.training.vectors.data import PairBatch, PairCounts, PairData, PairFeed, score_pairs
from bertkit.training.vectors.loss import contrastive_loss, cosent_loss, mse_loss
from bertkit.training.watch import StopRequest
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


@dataclass
class VectorHistory:
    """What a run remembers; its checkpoints keep it."""

    rows: list[dict[str, float]] = field(default_factory=list)  # one an epoch; the first is before any training
    losses: list[float] = field(default_factory=list)  # one a step
    seconds: float = 0.0


class VectorRun:
    """One tuning of a model, which is left as it was in its best epoch. With a folder it may be killed and goes on."""

    def __init__(
        self,
        model: BertModel,
        data: PairData,
        dev: PairData,
        loss: Loss,
        pooling: Pooling,
        config: VectorTraining,
        say: Say,
        checkpoints: CheckpointFolder | None = None,
        identity: str = "",
    ) -> None:
        self.model, self.dev, self.pooling, self.say = model, dev, pooling, say
        self.checkpoints, self.identity = checkpoints, identity  # of the run: another's checkpoints are refused
        order = ShuffledSteps(len(data), min(config.batch_size, len(data)), config.seed)
        self.every, self.history = order.steps_an_epoch, VectorHistory()
        self.kept: dict[str, Tensor] = {}
        device = model.device
        dtype = torch.bfloat16 if resolve_precision("auto", device) == "bfloat16" else None
        rates = OptimizerConfig(learning_rate=config.learning_rate, weight_decay=config.weight_decay)
        self.optimizers = build_optimizers(model, rates)
        plain = VectorObjective(model, loss, pooling, config.scale)
        self.loop: LossLoop[PairBatch, PairCounts] = LossLoop(
            objective=make_objective(plain, dtype),
            feeds=[PairFeed(data, order)],
            plan=order,
            optimizers=self.optimizers,
            schedule=ScheduleConfig(warmup_share=config.warmup_share),
            options=LoopOptions(log_every=self.every, seed=config.seed),
            progress=self._resume() or Progress(config.epochs * self.every),
            world=World(device=device),
        )
        if dtype is None:
            self.loop.used_rows = UsedRows.of(plain)

    def _resume(self) -> Progress | None:
        """Where the last checkpoint stood."""
        if self.checkpoints is None:
            return None
        self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
        self.checkpoints.clean()
        found = self.checkpoints.load()
        if found is None:
            return None
        state = found.state
        if state.get("identity") != self.identity:
            raise BertkitError(
                f"{self.checkpoints.folder} holds another run, with other pairs or settings; give the same ones to go on "
                "with it, or another folder"
            )
        self.model.load_state_dict(found.model.state_dict())
        import_state(self.optimizers, self.model, found.optimizer)
        self.history = VectorHistory(**state["history"])
        self.say(f"goes on after step {state['step']:,} of {state['num_steps']:,}")
        return Progress(state["num_steps"], state["step"])

    def run(self, stop: StopRequest | None = None) -> VectorHistory:
        """To the end, or to a signal, which is an error that says how to go on."""
        if not self.history.rows:
            self._look(0)
        loop = self.loop
        loop.run(self._on_records, lambda step: step % self.every == 0, self._look, stop)
        if loop.stopped_by:
            if self.checkpoints and loop.progress.step % self.every:
                self._save(is_best=False)
            raise BertkitError(f"stopped by {loop.stopped_by}; the same command goes on where it was")
        self._note_seconds()
        if self.checkpoints and (best := self.checkpoints.load("best")):
            self.kept = best.model.state_dict()
        self.model.load_state_dict(self.kept)
        return self.history

    def _on_records(self, records: Sequence[LossRecord]) -> None:
        self.history.losses += [record.loss for record in records]

    def _look(self, step: int) -> None:
        """The score on dev before training and after every epoch."""
        rows, losses = self.history.rows, self.history.losses
        scores = score_pairs(self.model, self.dev, self.pooling)
        name, score = next(iter(scores.items()))
        is_best = step > 0 and all(score >= row[name] for row in rows[1:])
        mean = {"loss": sum(losses[-self.every :]) / self.every} if losses else {}
        rows.append({"epoch": step // self.every, **mean, **scores})
        shown = ", ".join(f"{key} {value:.4f}" for key, value in rows[-1].items() if key != "epoch")
        self.say(f"epoch {step // self.every}: {shown}")
        if step and self.checkpoints:
            self._save(is_best=is_best)
        elif is_best:
            self.kept = {key: tensor.detach().clone() for key, tensor in self.model.state_dict().items()}

    def _note_seconds(self) -> None:
        self.history.seconds += self.loop.progress.seconds
        self.loop.progress.seconds = 0.0

    def _save(self, *, is_best: bool) -> None:
        assert self.checkpoints is not None
        self._note_seconds()
        state = {**asdict(self.loop.progress), "identity": self.identity, "history": asdict(self.history)}
        optimizer = export_state(self.optimizers, self.model)
        self.checkpoints.save(self.model, None, optimizer, state, is_best=is_best)
