"""Which micro-batches form which global step: stages, accumulation, and batches that grow at the start.

In: a step's number. Out: its stage, its first micro-batch and how many there are. All of it is arithmetic on the
recipe, so nothing of it has to be remembered in a checkpoint but the step.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from bertkit.corpus.masking import MaskingConfig
from bertkit.errors import BertkitError

MOST_TOKENS = 2**31 - 1  # places in a batch are counted in 32 bits
MOST_MICRO_BATCHES = 100_000  # more is a slip


@dataclass(frozen=True)
class Stage:
    """A part of the run with one batch shape: section A.2 of the paper has 90 % of the steps at 128, the rest at 512."""

    max_length: int = 128
    tokens_per_batch: int = 16384  # capacity of one micro-batch
    micro_batches: int = 1  # of a global step, over all processes
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    share: float = 1.0  # of all steps

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise BertkitError(f"stages: max_length is {self.max_length}; it must be at least 8")
        if self.tokens_per_batch < self.max_length:
            raise BertkitError(
                f"stages: tokens_per_batch {self.tokens_per_batch} holds not even one sequence of {self.max_length}"
            )
        if not 1 <= self.micro_batches <= MOST_MICRO_BATCHES:
            raise BertkitError(
                f"stages: micro_batches is {self.micro_batches}; it must be at least 1 and at most {MOST_MICRO_BATCHES:,}"
            )
        if self.tokens_per_batch > MOST_TOKENS:
            raise BertkitError(
                f"stages: tokens_per_batch is {self.tokens_per_batch}; it must be at most {MOST_TOKENS:,}"
            )
        if not 0.0 < self.share <= 1.0:
            raise BertkitError(f"stages: share is {self.share}; it must be above 0 and at most 1")


@dataclass(frozen=True)
class Place:
    """Where a global step finds its data."""

    stage: int
    first: int  # micro-batch of the stage
    count: int

    def of_rank(self, rank: int, size: int) -> list[int]:
        """The micro-batches that this process computes."""
        return [index for index in range(self.first, self.first + self.count) if index % size == rank]


@dataclass(frozen=True)
class StepPlan:
    """The stages of a run; the first one may begin with fewer micro-batches a step and grow."""

    stages: tuple[Stage, ...] = (Stage(),)
    batch_warmup_steps: int = 0
    batch_warmup_start: int = 1

    def __post_init__(self) -> None:
        if not self.stages:
            raise BertkitError("a recipe needs at least one [[stages]] table")
        total = sum(stage.share for stage in self.stages)
        if abs(total - 1.0) > 1e-6:
            raise BertkitError(f"the shares of the stages add up to {total:g}; make them add up to 1")
        if self.batch_warmup_steps and self.stages[0].micro_batches % max(1, self.batch_warmup_start):
            raise BertkitError(
                f"micro_batches {self.stages[0].micro_batches} is no multiple of batch_warmup_start "
                f"{self.batch_warmup_start}; choose one that divides it"
            )

    def check_world(self, size: int) -> None:
        """Every process needs as many micro-batches as every other."""
        counts = [stage.micro_batches for stage in self.stages]
        counts += [self.batch_warmup_start] if self.batch_warmup_steps else []
        for count in counts:
            if count % size:
                raise BertkitError(
                    f"{count} micro-batches a step do not divide among {size} processes; choose a multiple"
                )

    def locate(self, step: int, num_steps: int | None) -> Place:
        """The data of step 0, 1, ...; while the number of steps is not known, the run is in its first stage."""
        return self.place(step, *self._stage_of(step, num_steps))

    def place(self, step: int, stage: int, start: int) -> Place:
        """The data of a step of the stage that began at step `start`."""
        within, full = step - start, self.stages[stage].micro_batches
        if stage or not self.batch_warmup_steps:
            return Place(stage, within * full, full)
        grown = min(within, self.batch_warmup_steps)
        first = self._grown[grown] + (within - grown) * full
        return Place(stage, first, self._size(within))

    def first_step(self, stage: int, num_steps: int) -> int:
        """The step at which a stage begins."""
        return round(num_steps * self.share_before(stage))

    def share_before(self, stage: int) -> float:
        """How much of the run comes before a stage."""
        return sum(earlier.share for earlier in self.stages[:stage])

    def _stage_of(self, step: int, num_steps: int | None) -> tuple[int, int]:
        if num_steps is not None:
            for stage in range(len(self.stages) - 1, 0, -1):
                if step >= (start := self.first_step(stage, num_steps)):
                    return stage, start
        return 0, 0

    def _size(self, step: int) -> int:
        """Micro-batches of a step of the first stage, always a multiple of those at the start."""
        full, start = self.stages[0].micro_batches, self.batch_warmup_start
        if step >= self.batch_warmup_steps:
            return full
        return start * (1 + (full // start - 1) * step // self.batch_warmup_steps)

    @cached_property
    def _grown(self) -> list[int]:
        """How many micro-batches come before each step of the warm-up."""
        return [0, *accumulate(self._size(step) for step in range(self.batch_warmup_steps))]
