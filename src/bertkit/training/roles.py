"""What the loop asks of those it works with: counts and records of steps, the plan, the schedule, and who watches."""

from typing import Protocol

from bertkit.training.plan import Place


class Counts(Protocol):
    """How much a whole step holds, over all processes."""

    @property
    def denominators(self) -> tuple[int, ...]:
        """What the objective divides its sums by."""

    @property
    def num_tokens(self) -> int:
        """Real tokens."""


class Record(Protocol):
    """What a run remembers of a step; pre-training and tasks add figures of their own."""

    @property
    def step(self) -> int:
        """Steps done before it."""

    @property
    def loss(self) -> float:
        """What was minimised."""

    @property
    def grad_norm(self) -> float:
        """Before clipping."""


class Plan(Protocol):
    """Which micro-batches form which step."""

    def check_world(self, size: int) -> None:
        """Refuse a number of processes that the steps cannot be shared among."""

    def locate(self, step: int, num_steps: int | None) -> Place:
        """The micro-batches of step 0, 1, ..."""


class Schedule(Protocol):
    """The learning rate over the run."""

    def factor(self, step: int, num_steps: int | None) -> float:
        """The rate of step 0, 1, ... as a share of the peak."""


class UpdateWatch(Protocol):
    """Somebody who looks at gradients and weights around some steps' updates."""

    def is_due(self, step: int) -> bool:
        """Whether this step is looked at."""

    def before_update(self) -> None:
        """The gradients are whole and not yet clipped."""

    def after_update(self, step: int) -> None:
        """The weights have moved."""
