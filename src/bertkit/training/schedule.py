"""The learning rate as a share of its peak: linear as in the paper (section A.2), or warm-up, stable, decay."""

from dataclasses import dataclass
from typing import Literal

from bertkit.errors import BertkitError

Shape = Literal["linear", "wsd"]
SHAPES: tuple[Shape, ...] = ("linear", "wsd")
PROVISIONAL_STEPS = 10_000  # assumed until a time budget is a number of steps, so that the rate stays low till then


@dataclass(frozen=True)
class ScheduleConfig:
    """Shape and shares of the schedule, and how the batch grows at its start."""

    shape: Shape = "linear"
    warmup_share: float = 0.1
    warmup_steps: int | None = None  # in place of warmup_share: the same however long the run is
    decay_share: float = 0.2  # of wsd; linear decays all the way
    final: float = 0.0  # share of the peak that is left at the end
    batch_warmup_steps: int = 0
    batch_warmup_start: int = 1

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise BertkitError(f"unknown schedule {self.shape!r}; choose one of {', '.join(SHAPES)}")
        for name in ("warmup_share", "decay_share", "final"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise BertkitError(f"schedule.{name} is {getattr(self, name)}; it must lie in 0 to 1")
        if self.shape == "wsd" and self.warmup_share + self.decay_share > 1.0:
            raise BertkitError("schedule: warmup_share and decay_share are more than 1 together; lower one")
        if self.warmup_steps is not None and self.warmup_steps < 0:
            raise BertkitError(f"schedule.warmup_steps is {self.warmup_steps}; it must not be negative")
        if self.batch_warmup_steps < 0 or self.batch_warmup_start < 1:
            raise BertkitError("schedule: batch_warmup_steps must be at least 0 and batch_warmup_start at least 1")

    def factor(self, step: float, num_steps: int | None, taken: int | None = None) -> float:
        """The rate of step 0, 1, ... as a share of the peak.

        A time budget's steps may lie in between; `taken`, then, are the steps really done, which warmup_steps counts.
        """
        total = num_steps or PROVISIONAL_STEPS
        warmup = max(1, round(self.warmup_share * total) if self.warmup_steps is None else self.warmup_steps)
        begun = step if self.warmup_steps is None or taken is None else taken
        rise = min(1.0, (begun + 1) / warmup)
        decay = max(1, total - warmup if self.shape == "linear" else round(self.decay_share * total))
        left = min(1.0, max(0, total - step) / decay)
        return min(rise, self.final + (1.0 - self.final) * left)
