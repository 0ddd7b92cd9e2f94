"""What ends a run early: signals, a loss that is no number, a loss that climbs."""

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from bertkit.errors import BertkitError

SMOOTHING = 0.98
SETTLED = 50  # steps before a climbing loss counts
MOST_RISE = 2.0  # nats above the lowest smoothed loss


class DivergedError(BertkitError):
    """The loss is lost; the step is named."""


@dataclass
class Guard:
    """Remembers the smoothed loss and its lowest value."""

    num_steps: int = 0
    smoothed: float = 0.0
    lowest: float = math.inf
    most_rise: float = MOST_RISE

    def check(self, step: int, loss: float, grad_norm: float) -> None:
        """Refuse to go on from a loss that is no number, or that has climbed far above where it was."""
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            raise DivergedError(
                f"the loss is {loss} and the gradient's norm {grad_norm} at step {step}; lower the learning rate"
            )
        self.num_steps += 1
        keep = min(SMOOTHING, 1 - 1 / self.num_steps)
        self.smoothed = keep * self.smoothed + (1 - keep) * loss
        if self.num_steps < SETTLED:
            return
        self.lowest = min(self.lowest, self.smoothed)
        if self.smoothed > self.lowest + self.most_rise:
            rise = f"{self.lowest:.2f} to {self.smoothed:.2f}"
            raise DivergedError(
                f"the loss diverges: smoothed, it rose from {rise} by step {step}; lower the learning rate"
            )

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint."""
        lowest = self.lowest if math.isfinite(self.lowest) else None
        return {"num_steps": self.num_steps, "smoothed": self.smoothed, "lowest": lowest}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> "Guard":
        """From a checkpoint."""
        lowest = math.inf if plain["lowest"] is None else plain["lowest"]
        return cls(plain["num_steps"], plain["smoothed"], lowest)


@dataclass
class StopRequest:
    """Set by SIGTERM or SIGINT; the loop looks at it between steps."""

    name: str | None = None


@contextmanager
def catch_signals() -> Iterator[StopRequest]:
    """Turn the first SIGTERM or SIGINT into a request; a second one acts as ever."""
    request = StopRequest()
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        request.name = signal.Signals(number).name
        restore()

    try:
        for number in previous:
            signal.signal(number, note)
    except ValueError:  # not the main thread: there are no signals to catch
        yield request
        return
    try:
        yield request
    finally:
        restore()
