"""The training loop: micro-batches in, a trained model and the records of its steps out (section A.2 of the paper).

A step adds up the gradients of its micro-batches over all processes, clips them and updates; nothing waits for the
device until records are collected. Dropout is keyed by (seed, micro-batch), so it too survives a kill and does not
depend on the number of processes: there is no random state to store.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from bertkit.model.bert import BertModel
from bertkit.tasks.pretraining import PretrainingBatch
from bertkit.training.feeds import NO_COUNTS, Feed, Prefetcher, StepCounts, StreamFeed
from bertkit.training.objective import make_objective
from bertkit.training.optimizers import OptimizerConfig, build_optimizers, clip_gradients, set_rate
from bertkit.training.plan import Place, StepPlan
from bertkit.training.schedule import MEASURED_FROM, MEASURED_TO, ScheduleConfig, steps_in_budget
from bertkit.training.watch import Guard, StopRequest
from bertkit.training.world import World


@dataclass(frozen=True)
class StepRecord:
    """What one global step saw."""

    step: int
    mlm_loss: float
    nsp_loss: float
    mlm_accuracy: float = 0.0
    nsp_accuracy: float = 0.0
    grad_norm: float = 0.0
    learning_rate: float = 0.0
    counts: StepCounts = NO_COUNTS
    seconds: float = 0.0  # the mean over the steps that were collected together

    @property
    def loss(self) -> float:
        """The sum that was minimised."""
        return self.mlm_loss + self.nsp_loss


@dataclass(frozen=True)
class LoopOptions:
    """How steps are computed, apart from what they compute."""

    clip_norm: float = 1.0
    log_every: int = 1  # steps between looks at the device
    seed: int = 0
    bf16: bool = False
    compile: bool = False
    workers: int = 0  # threads that build micro-batches ahead
    seconds: float | None = None  # a time budget in place of a number of steps


@dataclass
class Progress:
    """How far a run is; a checkpoint keeps it."""

    num_steps: int | None = None  # None: not known yet, the run has a time budget
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Pending:
    """A step whose sums are still on the device."""

    record: StepRecord
    sums: Tensor


class Trainer:
    """One run's moving parts. `run` is the loop; every process of a run has one."""

    def __init__(
        self,
        model: BertModel,
        feeds: Sequence[Feed],
        plan: StepPlan,
        optimizers: Sequence[Optimizer],
        schedule: ScheduleConfig,
        options: LoopOptions,
        progress: Progress,
        world: World | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.model, self.plan, self.optimizers, self.schedule = model, plan, optimizers, schedule
        self.feeds, self.options, self.progress = feeds, options, progress
        self.world, self.guard = world or World(device=model.device), guard or Guard()
        self.plan.check_world(self.world.size)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.plain_objective = make_objective(model, bf16=options.bf16)  # for evaluation: no exchange of gradients
        self.objective = self._wrap(self.plain_objective)
        self.source = Prefetcher(feeds, options.workers, pinned=self.world.device.type == "cuda")
        self.stopped_by: str | None = None
        self.extra_seconds_a_step = 0.0  # what evaluations and checkpoints add, for a time budget
        self._pending: list[Pending] = []
        self._clock = time.perf_counter()

    def _wrap(self, objective: nn.Module) -> nn.Module:
        if self.world.size > 1:
            objective = DistributedDataParallel(objective, broadcast_buffers=False)
        if self.options.compile:
            objective.compile()
        return objective

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done."""
        return self.progress.num_steps is not None and self.progress.step >= self.progress.num_steps

    def run(
        self,
        on_records: Callable[[list[StepRecord]], None],
        is_due: Callable[[int], bool] = lambda step: False,
        on_due: Callable[[int], None] = lambda step: None,
        stop: StopRequest | None = None,
    ) -> None:
        """Train to the end or to a stop; `is_due` must answer alike in every process."""
        self.model.train()
        self._clock = time.perf_counter()
        while not self.is_finished and self.stopped_by is None:
            self.take_step()
            step = self.progress.step
            due = is_due(step)
            if due or self.is_finished or step % self.options.log_every == 0 or self._alone_and_stopped(stop):
                self._collect(on_records, stop)
                if due:
                    on_due(step)
                self._clock = time.perf_counter()
        self.source.close()

    def take_step(self) -> None:
        """One global step, enqueued."""
        step, num_steps = self.progress.step, self.progress.num_steps
        place = self.plan.locate(step, num_steps)
        keys = self._keys(place)
        self.source.announce(place, keys)
        coming = self.plan.locate(step + 1, num_steps)
        self.source.announce(coming, self._keys(coming))
        counts = self.source.take_counts(place)
        sums = self._accumulate(keys, counts)
        norm = clip_gradients(self.parameters, self.options.clip_norm)
        set_rate(self.optimizers, self.schedule.factor(step, num_steps))
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        rate = self.optimizers[-1].param_groups[0]["lr"]
        record = StepRecord(step, 0.0, 0.0, counts=counts, learning_rate=rate)
        self._pending.append(Pending(record, torch.cat([sums, norm[None] / self.world.size])))
        self.progress.step += 1
        self.progress.tokens += counts.num_tokens

    def _keys(self, place: Place) -> list[tuple[int, int]]:
        return [(place.stage, index) for index in place.of_rank(self.world.rank, self.world.size)]

    def _accumulate(self, keys: list[tuple[int, int]], counts: StepCounts) -> Tensor:
        """Forward and backward over this process's micro-batches; gradients are exchanged with the last one."""
        device, size = self.world.device, self.world.size
        whole = torch.tensor([max(1, counts.num_masked), max(1, counts.num_pairs)], dtype=torch.float32)
        whole = whole.to(device, non_blocking=True)
        total: Tensor | None = None
        for key in keys:
            with nullcontext() if key == keys[-1] else self._unsynced():
                batch = self.source.take(key).to(device)
                torch.manual_seed(dropout_seed(self.options.seed, *key))
                loss, sums = self.objective(batch, whole)
                (loss * size if size > 1 else loss).backward()  # the exchange takes the mean of the processes
            total = sums if total is None else total + sums
        assert total is not None  # the plan divides among the processes
        return total

    def _unsynced(self) -> AbstractContextManager[None]:
        wrapped = isinstance(self.objective, DistributedDataParallel)
        return self.objective.no_sync() if wrapped else nullcontext()  # type: ignore[operator]

    def _alone_and_stopped(self, stop: StopRequest | None) -> bool:
        return self.world.size == 1 and stop is not None and stop.name is not None

    def _collect(self, on_records: Callable[[list[StepRecord]], None], stop: StopRequest | None) -> None:
        """Read the device's sums, give out the records, and agree on stopping."""
        wanted = float(stop is not None and stop.name is not None)
        sums = torch.stack([pending.sums for pending in self._pending])
        flag = torch.full((1, sums.shape[1]), wanted, device=sums.device)
        *rows, flags = self.world.sum(torch.cat([sums, flag])).tolist()
        seconds = time.perf_counter() - self._clock
        self.progress.seconds += seconds
        each = seconds / len(rows)
        pending, self._pending = self._pending, []
        records = [finished(one.record, row, each) for one, row in zip(pending, rows, strict=True)]
        for record in records:
            self.guard.check(record.step, record.loss, record.grad_norm)
        self._set_length(each + self.extra_seconds_a_step)
        on_records(records)
        if flags[0]:
            self.stopped_by = (stop.name if stop else None) or "a signal to another process"

    def _set_length(self, seconds_a_step: float) -> None:
        """Turn a time budget into a number of steps once a step's time is known."""
        step, budget = self.progress.step, self.options.seconds
        if self.progress.num_steps is not None or budget is None or step < MEASURED_FROM:
            return
        left = budget - self.progress.seconds
        if step >= MEASURED_TO or left < (MEASURED_TO - step) * seconds_a_step:
            self.progress.num_steps = self.world.agree(steps_in_budget(step, seconds_a_step, left))


def finished(record: StepRecord, row: list[float], seconds: float) -> StepRecord:
    """The record of a step whose sums have arrived."""
    mlm, nsp, mlm_correct, nsp_correct, norm = row
    masked, pairs = max(1, record.counts.num_masked), max(1, record.counts.num_pairs)
    return replace(
        record,
        mlm_loss=mlm / masked,
        nsp_loss=nsp / pairs,
        mlm_accuracy=mlm_correct / masked,
        nsp_accuracy=nsp_correct / pairs,
        grad_norm=norm,
        seconds=seconds,
    )


def dropout_seed(seed: int, stage: int, index: int) -> int:
    """The seed of one micro-batch's dropout."""
    return int(np.random.SeedSequence((seed, stage, index)).generate_state(1, np.uint32)[0])


@dataclass(frozen=True)
class TrainingConfig:
    """A toy run. The defaults suit tiny models; the paper's own are rate 1e-4 and 10,000 warm-up steps."""

    num_steps: int
    learning_rate: float = 1e-3
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    beta2: float = 0.999
    clip_norm: float = 1.0

    @property
    def schedule(self) -> ScheduleConfig:
        """Up to the peak in the warm-up, then down to zero."""
        return ScheduleConfig(warmup_share=self.warmup_share)

    def rate(self, step: int) -> float:
        """The learning rate of step 0, 1, ..."""
        return self.learning_rate * self.schedule.factor(step, self.num_steps)


def make_optimizer(model: nn.Module, config: TrainingConfig) -> Optimizer:
    """AdamW with weight decay on matrices alone."""
    rates = OptimizerConfig(learning_rate=config.learning_rate, weight_decay=config.weight_decay, beta2=config.beta2)
    return build_optimizers(model, rates)[0]


def pretrain(
    model: BertModel,
    batches: Iterator[PretrainingBatch],
    config: TrainingConfig,
    on_step: Callable[[StepRecord], None] | None = None,
) -> list[StepRecord]:
    """Train on config.num_steps batches with nothing stored; the model is left in evaluation mode."""
    journal: list[StepRecord] = []

    def record(records: list[StepRecord]) -> None:
        journal.extend(records)
        for one in records if on_step else ():
            assert on_step is not None
            on_step(one)

    options, progress = LoopOptions(clip_norm=config.clip_norm), Progress(config.num_steps)
    optimizers = [make_optimizer(model, config)]
    feeds = [StreamFeed(batches)]
    Trainer(model, feeds, StepPlan(), optimizers, config.schedule, options, progress).run(record)
    model.eval()
    return journal
