"""Pre-training's loop (section A.2 of the paper): MLM and NSP figures of every step, on the one loop of stepping.py."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from torch import nn
from torch.optim import Optimizer

from bertkit.model.bert import BertModel
from bertkit.tasks.pretraining import PretrainingBatch
from bertkit.training.budget import TimeBudget
from bertkit.training.fast_objective import FastObjective, choose_objective
from bertkit.training.feeds import NO_COUNTS, BatchCounts, Feed, StepCounts, StreamFeed, sum_counts
from bertkit.training.growth import Growth
from bertkit.training.initialisation import repeat_positions
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers
from bertkit.training.plan import StepPlan
from bertkit.training.roles import Plan, Schedule
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.stepping import Loop, LoopOptions, Progress, Step
from bertkit.training.watch import Guard
from bertkit.training.world import World

__all__ = [
    "LoopOptions",
    "Progress",
    "StepRecord",
    "Trainer",
    "TrainingConfig",
    "make_optimizer",
    "pretrain",
]


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


class Trainer(Loop[PretrainingBatch, StepCounts, StepRecord]):
    """The loop over batches of pre-training."""

    def __init__(
        self,
        model: BertModel,
        feeds: Sequence[Feed],
        plan: Plan,
        optimizers: Sequence[Optimizer],
        schedule: Schedule,
        options: LoopOptions,
        progress: Progress,
        world: World | None = None,
        guard: Guard | None = None,
        objective: nn.Module | None = None,
        budget: TimeBudget | None = None,
    ) -> None:
        self.model = model
        self.growth: Growth | None = None  # set by a run whose model grows
        self.lengths: tuple[int, ...] = ()  # of the rows of each stage, set by a run
        self.repeats_positions = False  # set by a run that wants that where rows become longer
        objective = objective or choose_objective(model, options)
        if isinstance(objective, FastObjective):
            options = replace(options, compile=False)  # nothing is left to compile
        place = world or World(device=model.device)
        super().__init__(objective, feeds, plan, optimizers, schedule, options, progress, place, guard, budget)

    @property
    def changes_next(self) -> bool:
        """Whether the model grows, or rows become longer, before the next step."""
        return self._grows_next or self._lengthens_next

    @property
    def _grows_next(self) -> bool:
        return self.growth is not None and self.growth.depth(self.progress) > self.model.config.num_layers

    @property
    def _lengthens_next(self) -> bool:
        step = self.progress.step
        return step > 0 and self._longest(step) > self._longest(step - 1)

    def _longest(self, step: int) -> int:
        """The longest rows up to a step; 0 where no run has named any."""
        stage = self.plan.locate(step, self.progress.num_steps).stage
        return max(self.lengths[: stage + 1], default=0)

    def prepare_step(self) -> None:
        """Grow, and give longer rows their positions, where that is due."""
        if self._lengthens_next:
            if self.repeats_positions:
                repeat_positions(self.model.encoder.embeddings.position.weight, self._longest(self.progress.step - 1))
            self.guard = Guard()  # the loss rises until the new positions are learned, and that is no divergence
        if self.growth is not None and self._grows_next:
            self.optimizers = self.growth.grow(self.model, self.optimizers, self.growth.depth(self.progress))
            self.adopt(choose_objective(self.model, self.options))
            if self.budget:
                self.budget.change_pace()

    @staticmethod
    def add_counts(counts: Iterable[BatchCounts]) -> StepCounts:
        """Masked tokens, pairs and tokens."""
        return sum_counts(counts)

    def make_record(self, step: Step[StepCounts], sums: list[float]) -> StepRecord:
        """Sums as means over the step's targets."""
        mlm, nsp, mlm_correct, nsp_correct = sums
        masked, pairs = step.counts.denominators
        return StepRecord(
            step=step.step,
            mlm_loss=mlm / masked,
            nsp_loss=nsp / pairs,
            mlm_accuracy=mlm_correct / masked,
            nsp_accuracy=nsp_correct / pairs,
            grad_norm=step.grad_norm,
            learning_rate=step.learning_rate,
            counts=step.counts,
            seconds=step.seconds,
        )


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
