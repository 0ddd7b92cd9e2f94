"""A time budget in place of a number of steps: how long a run is, and how far through it each step is.

The number of steps is estimated from the measured ones and estimated anew all along. The schedule and the stages
follow the share of the run that is done, a line through knots (step, share); a new estimate adds a knot where the run
is, so what was done stays as it was, and nothing jumps. A checkpoint keeps the knots, so a resumed run goes on alike.
"""

import math
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from bertkit.training.plan import Place, StepPlan
from bertkit.training.schedule import PROVISIONAL_STEPS, ScheduleConfig
from bertkit.training.world import World

if TYPE_CHECKING:
    from bertkit.training.stepping import Progress

NUM_SAMPLES = 11  # measurements of a step's time that the median is taken of
LEAST_SAMPLES = 3
LOOKS_KEPT = 5  # measurements of what an evaluation and a checkpoint take
ANEW_AFTER = 0.01  # of the budget, between estimates; less where the end is near
ANEW_NEAR_THE_END = 0.1  # of what is left
COLLECTED_WITHIN = 0.005  # of the budget, between looks at the clock


class TimedPlan:
    """A plan whose stages begin when their share of the run is done."""

    def __init__(self, plan: StepPlan, progress: "Progress") -> None:
        self._plan, self._progress = plan, progress

    def check_world(self, size: int) -> None:
        """As the plan's own."""
        self._plan.check_world(size)

    def locate(self, step: int, num_steps: int | None) -> Place:
        """The data of step 0, 1, ..."""
        for stage in range(len(self._plan.stages) - 1, 0, -1):
            begins = self._plan.share_before(stage)
            if share_done(self._progress, step) >= begins:
                first = bisect_left(range(step), begins, key=lambda earlier: share_done(self._progress, earlier))
                return self._plan.place(step, stage, first)
        return self._plan.place(step, 0, 0)


class TimedSchedule:
    """A schedule over the share of the run that is done."""

    def __init__(self, schedule: ScheduleConfig, progress: "Progress") -> None:
        self._schedule, self._progress = schedule, progress

    def factor(self, step: int, num_steps: int | None) -> float:
        """The rate of step 0, 1, ... as a share of the peak."""
        total = num_steps or PROVISIONAL_STEPS
        return self._schedule.factor(share_done(self._progress, step) * total, total, step)


def share_done(progress: "Progress", step: int) -> float:
    """How much of the run is done before this step, 0 to 1; until it is known, as if the run were a long one."""
    knots = progress.knots
    after = bisect_right(knots, step, key=lambda knot: knot[0])
    begin, done = knots[after - 1] if after else (0, 0.0)
    if after < len(knots):
        end, aim = knots[after]
    else:
        end, aim = (progress.num_steps or PROVISIONAL_STEPS), 1.0
    return min(1.0, done + (aim - done) * (step - begin) / max(1, end - begin))


@dataclass
class TimeBudget:
    """Watches the clock from the run's beginning; sets and mends progress.num_steps."""

    seconds: float
    progress: "Progress"
    looks_a_step: float = 0.0  # evaluations and checkpoints, which cost time too
    clock: Callable[[], float] = time.monotonic
    started: float | None = None  # by that clock

    def __post_init__(self) -> None:
        self.collect_every = 1  # steps between looks at the clock, at most
        self._mark = self.clock() if self.started is None else self.started
        self._step_seconds: deque[float] = deque(maxlen=NUM_SAMPLES)
        self._look_seconds: deque[float] = deque(maxlen=LOOKS_KEPT)
        self._first_look: float | None = None
        self._first_steps_seen = False
        self._estimated_at = -math.inf

    def begin(self) -> None:
        """The steps begin now; what came before is spent."""
        self._lap()

    def looked(self) -> None:
        """An evaluation or a checkpoint is done. The first one also warms up, so it tells little of the others."""
        seconds = self._lap()
        if self._first_look is None:
            self._first_look = seconds
        else:
            self._look_seconds.append(seconds)

    def change_pace(self) -> None:
        """From now on steps take another time, because of a new stage or depth: what was measured counts no more."""
        self._step_seconds.clear()
        self._first_steps_seen = False
        self._estimated_at = -math.inf
        self.collect_every = 1

    def note(self, num_steps: int, world: World) -> None:
        """So many steps are done; the first process decides how many there will be."""
        seconds = self._lap() / num_steps
        if self._first_steps_seen:
            self._step_seconds.append(seconds)
        self._first_steps_seen = True  # they compile and warm up
        wanted = world.agree(self._estimate())
        self.collect_every = world.agree(self._collect_every())
        if wanted not in (self.progress.num_steps, UNKNOWN):
            done = share_done(self.progress, self.progress.step)
            self.progress.knots.append((self.progress.step, done))
            self.progress.num_steps = wanted

    def _lap(self) -> float:
        now = self.clock()
        seconds, self._mark = now - self._mark, now
        self.progress.spent += seconds
        return seconds

    def _estimate(self) -> int:
        """Steps in all: as before, anew, or none more because the time is over."""
        progress = self.progress
        left = self.seconds - progress.spent - self._last_look()
        if left <= 0 or progress.step == progress.num_steps:  # at the end the rate is down: more steps learn nothing
            return progress.step
        since = progress.spent - self._estimated_at
        is_due = since >= min(ANEW_AFTER * self.seconds, ANEW_NEAR_THE_END * left)
        if len(self._step_seconds) < LEAST_SAMPLES or not is_due:
            return UNKNOWN if progress.num_steps is None else progress.num_steps
        self._estimated_at = progress.spent
        looks = fmean(self._look_seconds) * self.looks_a_step if self._look_seconds else 0.0
        return progress.step + int(left / max(self._pace() + looks, 1e-9))

    def _pace(self) -> float:
        """Seconds a step: of all that is remembered, or of the latest alone where those are slower."""
        latest = list(self._step_seconds)[-LEAST_SAMPLES:]
        return max(median(self._step_seconds), median(latest))

    def _last_look(self) -> float:
        """What comes after the last step."""
        return max(self._look_seconds) if self._look_seconds else self._first_look or 0.0

    def _collect_every(self) -> int:
        if not self._step_seconds:
            return 1
        return max(1, int(COLLECTED_WITHIN * self.seconds / max(median(self._step_seconds), 1e-9)))


UNKNOWN = -1  # a number of steps that is not known yet


def count_looks(*every_steps: int) -> float:
    """How many of these periods end at a step, on average; those that end together count once."""
    periods = {every for every in every_steps if every}
    return sum(1 / every for every in periods) - (1 / math.lcm(*periods) if len(periods) > 1 else 0.0)
