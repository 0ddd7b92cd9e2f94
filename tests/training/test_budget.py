"""A time budget, by a clock that the tests turn: where a run ends, and that its schedule never jumps or goes back."""

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertkit.model import BertModel, preset
from bertkit.training.budget import TimeBudget, TimedPlan, TimedSchedule, count_looks, share_done
from bertkit.training.checkpoints import CheckpointConfig, CheckpointFolder
from bertkit.training.journal import read_journal
from bertkit.training.loop import LoopOptions, Progress, Trainer
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers
from bertkit.training.plan import Stage, StepPlan
from bertkit.training.schedule import PROVISIONAL_STEPS, ScheduleConfig
from bertkit.training.world import World
from tests.training.tiny import MemoryFeed, recipe, run, tokenizer

BUDGET = 300.0


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def simulate(
    step_seconds: Callable[[float], float],
    *,
    look: float = 0.0,
    first_look: float = 0.0,
    compile_seconds: float = 0.0,
    every: int = 0,
    log_every: int = 20,
    progress: Progress | None = None,
) -> tuple[float, Progress]:
    """The loop's dealings with its budget; step_seconds says how long a step takes by the share of the budget spent."""
    clock, progress = Clock(), progress or Progress()
    budget = TimeBudget(BUDGET, progress, count_looks(every), clock)
    clock.now += first_look
    budget.looked()
    budget.begin()
    clock.now += compile_seconds
    waiting = 0
    while progress.num_steps is None or progress.step < progress.num_steps:
        clock.now += step_seconds((clock.now - 1000.0) / BUDGET)
        progress.step, waiting = progress.step + 1, waiting + 1
        due = bool(every) and progress.step % every == 0
        if due or progress.step % min(log_every, budget.collect_every) == 0 or progress.step == progress.num_steps:
            budget.note(waiting, World())
            waiting = 0
            if due or progress.step == progress.num_steps:
                clock.now += look
                budget.looked()
    return (clock.now - 1000.0) / BUDGET, progress


@pytest.mark.parametrize("log_every", [1, 20, 1000])
@pytest.mark.parametrize("seconds", [0.02, 0.3, 2.0])
def test_a_steady_machine_ends_within_three_percent(seconds: float, log_every: int) -> None:
    end, _ = simulate(lambda share: seconds, look=2.0, first_look=2.0, every=int(25 / seconds), log_every=log_every)
    assert end == pytest.approx(1.0, abs=0.03)


def test_compiling_and_a_slow_first_evaluation_are_spent_but_not_extrapolated() -> None:
    end, progress = simulate(lambda share: 0.02, look=1.0, first_look=25.0, compile_seconds=40.0, every=1000)
    assert end == pytest.approx(1.0, abs=0.03)
    assert progress.step * 0.02 > 0.7 * BUDGET  # most of the time went into steps


@pytest.mark.parametrize("when", [0.1, 0.5, 0.9, 0.97])
@pytest.mark.parametrize("factor", [0.3, 2.0, 5.0])
def test_a_machine_that_changes_its_speed_does_not_overrun(when: float, factor: float) -> None:
    end, _ = simulate(lambda share: 0.05 * (factor if share > when else 1.0), look=1.0, first_look=1.0, every=500)
    assert end <= 1.05
    assert end == pytest.approx(1.0, abs=0.05)


def test_a_new_pace_is_measured_at_once_without_its_first_step() -> None:
    clock, progress = Clock(), Progress()
    budget = TimeBudget(BUDGET, progress, clock=clock)
    budget.begin()

    def take(seconds: float) -> None:
        clock.now += seconds
        progress.step += 1
        budget.note(1, World())

    for _ in range(500):
        take(0.1)
    done = share_done(progress, progress.step)
    assert progress.num_steps == pytest.approx(3000, rel=0.01)
    assert budget.collect_every > 1
    budget.change_pace()
    assert budget.collect_every == 1  # so that the new pace is soon known
    for seconds in (20.0, 0.4, 0.4, 0.4):  # the first one compiles
        take(seconds)
    assert progress.num_steps == pytest.approx(504 + (BUDGET - 71.2) / 0.4, abs=2)
    assert share_done(progress, 500) == pytest.approx(done)  # what was done stays
    for _ in range((progress.num_steps or 0) - progress.step):
        take(0.4)
    assert clock.now - 1000.0 == pytest.approx(BUDGET, rel=0.01)


def test_a_warm_up_in_steps_does_not_depend_on_the_estimate() -> None:
    progress = Progress()
    rates = TimedSchedule(ScheduleConfig(warmup_steps=50), progress)
    unknown = rates.factor(9, None)
    progress.num_steps, progress.knots = 700, [(10, 10 / PROVISIONAL_STEPS)]
    assert unknown == pytest.approx(10 / 50)
    assert rates.factor(10, 700) == pytest.approx(11 / 50)
    assert rates.factor(50, 700) == pytest.approx(1.0, abs=0.01)
    assert rates.factor(699, 700) < 0.01


def test_stalls_now_and_then_do_not_overrun() -> None:
    number = [0]

    def step(share: float) -> float:
        number[0] += 1
        return 4.0 if number[0] % 400 == 0 else 0.03

    end, _ = simulate(step)
    assert end == pytest.approx(1.0, abs=0.03)


def test_a_budget_too_small_for_anything_ends_after_the_first_look_at_the_clock() -> None:
    end, progress = simulate(lambda share: 400.0)
    assert progress.step == progress.num_steps == 1
    assert end == pytest.approx(400 / BUDGET)


speeds = st.lists(st.floats(0.3, 3.0), min_size=5, max_size=5)


@settings(max_examples=30, deadline=None)
@example(speeds=[1.0, 1.0, 1.0, 0.375, 3.0], shape="wsd")
@given(speeds=speeds, shape=st.sampled_from(["linear", "wsd"]))
def test_rates_and_stages_never_jump_and_what_was_done_stays(speeds: list[float], shape: str) -> None:
    schedule = ScheduleConfig(shape, warmup_share=0.1, decay_share=0.3)  # type: ignore[arg-type]
    plan = StepPlan((Stage(share=0.6), Stage(max_length=256, share=0.4)))
    seen: list[tuple[float, int, int]] = []
    made = Progress()
    timed, rates = TimedPlan(plan, made), TimedSchedule(schedule, made)

    def step(share: float) -> float:
        place = timed.locate(made.step, made.num_steps)
        seen.append((rates.factor(made.step, made.num_steps), place.stage, place.first))
        return 0.2 * speeds[min(4, int(5 * share))]

    end, progress = simulate(step, progress=made)
    assert end <= 1.05
    factors = [factor for factor, _, _ in seen]
    assert max(abs(after - before) for before, after in pairwise(factors)) < 0.1
    assert factors[-1] < 0.2  # a machine that becomes ten times slower near the end leaves some of the decay undone
    assert max(factors) > 0.95
    stages = [stage for _, stage, _ in seen]
    assert stages == sorted(stages)
    assert set(stages) == {0, 1}
    for stage in (0, 1):  # every micro-batch of a stage once, in order
        firsts = [first for _, which, first in seen if which == stage]
        assert firsts == list(range(len(firsts)))
    # From the checkpoint alone, every step finds the place that it had.
    kept = Progress(**json.loads(json.dumps(asdict(progress))))
    again = TimedPlan(plan, kept)
    assert [again.locate(step, kept.num_steps).stage for step in range(kept.step)] == stages
    assert len(kept.knots) < 300


def test_until_the_length_is_known_the_rate_stays_low() -> None:
    progress = Progress()
    assert share_done(progress, 5) == 5 / PROVISIONAL_STEPS
    schedule = ScheduleConfig(warmup_share=0.1)
    assert TimedSchedule(schedule, progress).factor(0, None) == schedule.factor(0, PROVISIONAL_STEPS)


def test_looks_that_fall_together_count_once() -> None:
    assert count_looks(0, 0) == 0.0
    assert count_looks(10, 0) == pytest.approx(0.1)
    assert count_looks(10, 10) == pytest.approx(0.1)
    assert count_looks(10, 20) == pytest.approx(0.1)
    assert count_looks(4, 6) == pytest.approx(4 / 12)


def test_the_loop_ends_by_the_clock() -> None:
    clock, progress = Clock(), Progress()

    class Slow(MemoryFeed):
        def counts(self, index: int):  # type: ignore[no-untyped-def]
            clock.now += 6.0 if index > 20 else 3.0
            return super().counts(index)

    torch.manual_seed(0)
    model = BertModel(preset("tiny", vocab_size=tokenizer().vocab_size, hidden_size=16, intermediate_size=16))
    plan = TimedPlan(StepPlan((Stage(max_length=16, tokens_per_batch=64),)), progress)
    optimizers, schedule = build_optimizers(model, OptimizerConfig()), TimedSchedule(ScheduleConfig(), progress)
    budget = TimeBudget(BUDGET, progress, clock=clock)
    due: list[int] = []
    trainer = Trainer(model, [Slow(1)], plan, optimizers, schedule, LoopOptions(log_every=50), progress, budget=budget)
    trainer.run(lambda records: None, lambda step: trainer.is_finished, due.append)
    assert progress.step == progress.num_steps
    assert due == [progress.step]  # the last look is not forgotten
    assert clock.now - 1000.0 == pytest.approx(BUDGET, rel=0.05)


def test_a_run_by_time_ends_and_resumes_as_it_was(tmp_path: Path) -> None:
    made = recipe(steps=None, minutes=0.02)
    result = run(tmp_path / "run", made)
    assert result.step == result.num_steps
    state = json.loads((tmp_path / "run" / "checkpoints" / "last" / "state.json").read_text(encoding="utf-8"))
    assert state["num_steps"] == result.step
    assert state["knots"][-1][0] <= result.step
    assert state["spent"] > 0.0
    assert [line for line in read_journal(tmp_path / "run") if line["kind"] == "evaluation"][-1]["step"] == result.step
    assert run(tmp_path / "run", made, resume=True).weights_sha256 == result.weights_sha256  # nothing left to do


def test_a_resumed_run_keeps_what_was_estimated_and_spent(tmp_path: Path) -> None:
    made = recipe(steps=None, minutes=0.02, checkpoints=CheckpointConfig(every_steps=3, keep=100))
    run(tmp_path / "run", made)
    folder = CheckpointFolder(tmp_path / "run" / "checkpoints")
    names = sorted(path.name for path in folder.folder.glob("step-*"))
    folder._point("last", Path(names[len(names) // 2]))
    before = folder.load()
    assert before is not None
    result = run(tmp_path / "run", made, resume=True)
    after = folder.load()
    assert after is not None
    assert result.step == result.num_steps == after.state["step"] > before.state["step"]
    assert after.state["knots"][: len(before.state["knots"])] == before.state["knots"]
    assert after.state["spent"] > before.state["spent"]
