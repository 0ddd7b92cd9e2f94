"""The one training loop, of pre-training and of every task: micro-batches in, a trained model and its records out.

A step adds up the gradients of its micro-batches over all processes, clips them and updates; nothing waits for the
device until records are collected. Dropout is keyed by (seed, micro-batch), so it too survives a kill and does not
depend on the number of processes: there is no random state to store.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from bertkit.training.budget import TimeBudget
from bertkit.training.determinism import dropout_seed, seed_generators
from bertkit.training.feeds import BatchT, MicroBatches
from bertkit.training.optimizers.build import clip_gradients, set_rate
from bertkit.training.plan import Place
from bertkit.training.prefetching import Prefetcher
from bertkit.training.roles import Counts, Plan, Record, Schedule, UpdateWatch
from bertkit.training.sharding import exchange_gradients, without_exchange
from bertkit.training.watch import Guard, StopRequest
from bertkit.training.world import World

Kernels = Literal["auto", "fast", "plain"]
KERNELS: tuple[Kernels, ...] = ("auto", "fast", "plain")
CountsT = TypeVar("CountsT", bound=Counts)
RecordT = TypeVar("RecordT", bound=Record)


@dataclass(frozen=True)
class LoopOptions:
    """How steps are computed, apart from what they compute."""

    clip_norm: float = 1.0
    log_every: int = 1  # steps between looks at the device
    seed: int = 0
    dtype: torch.dtype | None = None  # of products; None: float32 (see precision.py)
    kernels: Kernels = "plain"  # how bf16 is computed: fast_objective.py chooses
    eight_bits: bool = False
    compile: bool = False
    workers: int = 0  # processes or threads that build micro-batches ahead


@dataclass
class Progress:
    """How far a run is; a checkpoint keeps it."""

    num_steps: int | None = None  # None: not known yet, the run has a time budget
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of steps
    spent: float = 0.0  # of a time budget
    knots: list[tuple[int, float]] = field(default_factory=list)  # where its length was estimated anew: see budget.py


@dataclass(frozen=True)
class Step(Generic[CountsT]):
    """What the loop itself knows of a step."""

    step: int
    counts: CountsT
    learning_rate: float
    grad_norm: float = 0.0
    seconds: float = 0.0  # the mean over the steps that were collected together


@dataclass(frozen=True)
class Pending(Generic[CountsT]):
    """A step whose sums are still on the device."""

    step: Step[CountsT]
    sums: Tensor


class Loop(ABC, Generic[BatchT, CountsT, RecordT]):
    """One run's moving parts. `run` is the loop; every process of a run has one.

    The objective maps (micro-batch, denominators) to its share of the step's loss and to sums for the record.
    """

    def __init__(
        self,
        objective: nn.Module,
        feeds: Sequence[MicroBatches[BatchT]],
        plan: Plan,
        optimizers: Sequence[Optimizer],
        schedule: Schedule,
        options: LoopOptions,
        progress: Progress,
        world: World,
        guard: Guard | None = None,
        budget: TimeBudget | None = None,
    ) -> None:
        self.plan, self.optimizers, self.schedule = plan, optimizers, schedule
        self.feeds, self.options, self.progress = feeds, options, progress
        self.world, self.guard = world, guard or Guard()
        self.plan.check_world(self.world.size)
        self.adopt(objective)
        pinned = self.world.device.type == "cuda"
        self.source = Prefetcher(feeds, options.workers, pinned=pinned, add=self.add_counts)
        self.scaler = GradScaler(world.device.type) if options.dtype == torch.float16 else None
        self.stopped_by: str | None = None
        self.budget = budget
        self.watch: UpdateWatch | None = None
        self._stage = 0
        self._pending: list[Pending[CountsT]] = []
        self._clock = time.perf_counter()

    def adopt(self, objective: nn.Module) -> None:
        """Train this objective's weights from now on."""
        self.parameters = [p for p in objective.parameters() if p.requires_grad]
        self.plain_objective = objective  # for evaluation: no exchange of gradients
        self.objective = exchange_gradients(objective, self.world)
        if self.options.compile:
            self.objective.compile()

    @staticmethod
    @abstractmethod
    def add_counts(counts: Iterable[Any]) -> Any:
        """The counts of a step's micro-batches as those of the step."""

    @abstractmethod
    def make_record(self, step: Step[CountsT], sums: list[float]) -> RecordT:
        """The record of a step whose sums have arrived."""

    def relieve(self) -> bool:
        """Make the micro-batches smaller because memory ran out; False where that cannot be done."""
        return False

    @property
    def changes_next(self) -> bool:
        """Whether `prepare_step` has something to do before the next step: what is pending is collected first."""
        return False

    def prepare_step(self) -> None:
        """Change what is trained, where a run does that."""

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done."""
        return self.progress.num_steps is not None and self.progress.step >= self.progress.num_steps

    def run(
        self,
        on_records: Callable[[list[RecordT]], None],
        is_due: Callable[[int], bool] = lambda step: False,
        on_due: Callable[[int], None] = lambda step: None,
        stop: StopRequest | None = None,
    ) -> None:
        """Train to the end or to a stop; `is_due` must answer alike in every process."""
        self.plain_objective.train()
        self._clock = time.perf_counter()
        if self.budget:
            self.budget.begin()
        try:
            while not self.is_finished and self.stopped_by is None:
                self.prepare_step()
                self.take_step()
                step = self.progress.step
                due = is_due(step)
                wanted = due or self.is_finished or self.changes_next or self._alone_and_stopped(stop)
                if wanted or step % self._log_every == 0:
                    self._collect(on_records, stop)
                    if due or (step == self.progress.num_steps and is_due(step)):  # the time may be over by now
                        on_due(step)
                        if self.budget:
                            self.budget.looked()
                    self._clock = time.perf_counter()
        finally:  # workers would outlive an error
            self.source.close()

    def begin_feeding(self) -> None:
        """Let workers start on the step that is due while something else is done first; `run` ends them."""
        place = self.plan.locate(self.progress.step, self.progress.num_steps)
        self.source.announce(place, self._keys(place))

    def take_step(self) -> None:
        """One global step, enqueued; where memory runs out it is computed anew in smaller micro-batches."""
        while True:
            try:
                counts, sums = self._compute()
                break
            except torch.OutOfMemoryError:
                if not self.relieve():
                    raise
            # Outside of the handler, which would keep the step's tensors alive.
            self.zero_gradients()
            self.source.forget()
            if self.world.device.type == "cuda":
                torch.cuda.empty_cache()
        set_rate(self.optimizers, self.schedule.factor(self.progress.step, self.progress.num_steps))
        norm = self._update()
        self.zero_gradients()
        rate = self.optimizers[-1].param_groups[0]["lr"]
        taken = Step(self.progress.step, counts, rate)
        self._pending.append(Pending(taken, torch.cat([sums, norm[None] / self.world.size])))
        self.progress.step += 1
        self.progress.tokens += counts.num_tokens

    def _update(self) -> Tensor:
        """Clip and move the weights; the gradients' norm comes back, 0 where float16 overflowed and nothing moved."""
        step, scaler = self.progress.step, self.scaler
        watch = self.watch if self.watch and self.watch.is_due(step) else None
        if scaler:
            for optimizer in self.optimizers:
                scaler.unscale_(optimizer)
        if watch:
            watch.before_update()
        norm = clip_gradients(self.parameters, self.options.clip_norm)
        if scaler is None or norm.isfinite():  # of two optimizers, one must not move where the other's part overflowed
            for optimizer in self.optimizers:
                scaler.step(optimizer) if scaler else optimizer.step()
        if watch:
            watch.after_update(step)
        if scaler is None:
            return norm
        scaler.update()
        return torch.where(norm.isfinite(), norm, 0.0)

    @property
    def loss_scale(self) -> dict[str, Any] | None:
        """What a checkpoint keeps of float16's scaled loss."""
        return None if self.scaler is None else self.scaler.state_dict()

    @loss_scale.setter
    def loss_scale(self, state: dict[str, Any] | None) -> None:
        if self.scaler is not None and state is not None:
            self.scaler.load_state_dict(state)

    def zero_gradients(self) -> None:
        """Nothing is left of a step."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _compute(self) -> tuple[CountsT, Tensor]:
        """Gradients and sums of the step that is due."""
        step, num_steps = self.progress.step, self.progress.num_steps
        place = self.plan.locate(step, num_steps)
        if self.budget and place.stage != self._stage:
            self.budget.change_pace()
        self._stage = place.stage
        keys = self._keys(place)
        self.source.announce(place, keys)
        self._announce_coming(step + 1, num_steps)
        counts: CountsT = self.source.take_counts(place)
        return counts, self._accumulate(keys, counts)

    def _announce_coming(self, step: int, num_steps: int | None) -> None:
        """The next step at least, and more where workers would be idle."""
        first = step
        while (num_steps is None or step < num_steps) and (step == first or self.source.has_room):
            coming = self.plan.locate(step, num_steps)
            self.source.announce(coming, self._keys(coming))
            step += 1

    def _keys(self, place: Place) -> list[tuple[int, int]]:
        return [(place.stage, index) for index in place.of_rank(self.world.rank, self.world.size)]

    def _accumulate(self, keys: list[tuple[int, int]], counts: CountsT) -> Tensor:
        """Forward and backward over this process's micro-batches; gradients are exchanged with the last one."""
        device = self.world.device
        whole = torch.tensor(counts.denominators, dtype=torch.float32).to(device, non_blocking=True)
        total: Tensor | None = None
        for key in keys:
            with nullcontext() if key == keys[-1] else without_exchange(self.objective):
                seed_generators(dropout_seed(self.options.seed, *key), device)
                sums = self.differentiate(self.source.take(key), whole)
            total = sums if total is None else total + sums
        assert total is not None  # the plan divides among the processes
        return total

    def differentiate(self, batch: BatchT, whole: Tensor) -> Tensor:
        """Add a micro-batch's gradients to the step's; its sums come back."""
        loss, sums = self.objective(batch.to(self.world.device), whole)
        size = self.world.size
        loss = loss * size if size > 1 else loss  # the exchange takes the mean of the processes
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        found: Tensor = sums
        return found

    def _alone_and_stopped(self, stop: StopRequest | None) -> bool:
        return self.world.size == 1 and stop is not None and stop.name is not None

    def _collect(self, on_records: Callable[[list[RecordT]], None], stop: StopRequest | None) -> None:
        """Read the device's sums, give out the records, and agree on stopping."""
        wanted = float(stop is not None and stop.name is not None)
        sums = torch.stack([pending.sums for pending in self._pending])
        flag = torch.full((1, sums.shape[1]), wanted, device=sums.device)
        *rows, flags = self.world.sum(torch.cat([sums, flag])).tolist()
        seconds = time.perf_counter() - self._clock
        self.progress.seconds += seconds
        each = seconds / len(rows)
        pending, self._pending = self._pending, []
        records = [
            self.make_record(replace(one.step, grad_norm=norm, seconds=each), row)
            for one, (*row, norm) in zip(pending, rows, strict=True)
        ]
        for record in records:
            self.guard.check(record.step, record.loss, record.grad_norm)
        if self.budget:
            self.budget.note(len(records), self.world)
        on_records(records)
        if flags[0] and not self.is_finished:  # a signal that comes with the last step stops nothing
            self.stopped_by = (stop.name if stop else None) or "a signal to another process"

    @property
    def _log_every(self) -> int:
        every = self.options.log_every
        return min(every, self.budget.collect_every) if self.budget else every
