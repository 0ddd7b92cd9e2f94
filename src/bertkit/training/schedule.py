"""The learning rate as a share of its peak: linear as in the paper (section A.2), or warm-up, stable, decay.

A run is as long as its steps, or as a time budget, which becomes a step count once the first steps are measured.
"""

from dataclasses import dataclass
from typing import Literal

from bertkit.errors import BertkitError

Shape = Literal["linear", "wsd"]
SHAPES: tuple[Shape, ...] = ("linear", "wsd")
MEASURED_FROM, MEASURED_TO = 10, 40  # steps that tell how long a step takes; the first ones compile and warm up
PROVISIONAL_STEPS = 10_000  # the length assumed until then, so that the rate stays low in the warm-up


@dataclass(frozen=True)
class ScheduleConfig:
    """Shape and shares of the schedule, and how the batch grows at its start."""

    shape: Shape = "linear"
    warmup_share: float = 0.1
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
        if self.batch_warmup_steps < 0 or self.batch_warmup_start < 1:
            raise BertkitError("schedule: batch_warmup_steps must be at least 0 and batch_warmup_start at least 1")

    def factor(self, step: int, num_steps: int | None) -> float:
        """The rate of step 0, 1, ... as a share of the peak."""
        total = num_steps or PROVISIONAL_STEPS
        warmup = max(1, round(self.warmup_share * total))
        if step < warmup:
            return (step + 1) / warmup
        decay = max(1, total - warmup if self.shape == "linear" else round(self.decay_share * total))
        left = min(1.0, max(0, total - step) / decay)
        return self.final + (1.0 - self.final) * left


def steps_in_budget(step: int, seconds_a_step: float, seconds_left: float) -> int:
    """How many steps a run has in all that has so much time left."""
    return step + max(1, int(seconds_left / max(seconds_a_step, 1e-9)))
