"""Steps to micro-batches: stages, growing batches, and every rank's share; the schedule's shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.training.plan import Stage, StepPlan
from bertkit.training.schedule import ScheduleConfig


@given(
    full=st.integers(1, 6),
    start=st.integers(1, 4),
    warmup=st.integers(0, 20),
    num_steps=st.integers(1, 60),
    share=st.sampled_from([1.0, 0.9, 0.5]),
)
def test_steps_cover_the_micro_batches_of_each_stage_once(
    full: int, start: int, warmup: int, num_steps: int, share: float
) -> None:
    first = Stage(micro_batches=full * start, share=share)
    stages = (first,) if share == 1.0 else (first, Stage(micro_batches=start, share=1.0 - share))
    plan = StepPlan(stages, warmup, start)
    for size in {1, start}:
        plan.check_world(size)
        seen: dict[int, list[int]] = {}
        for step in range(num_steps):
            place = plan.locate(step, num_steps)
            taken = [place.of_rank(rank, size) for rank in range(size)]
            assert len({len(indices) for indices in taken}) == 1
            assert all(index % size == rank for rank, indices in enumerate(taken) for index in indices)
            seen.setdefault(place.stage, []).extend(sorted(index for indices in taken for index in indices))
        assert all(indices == list(range(len(indices))) for indices in seen.values())


def test_the_batch_grows_to_its_full_size() -> None:
    plan = StepPlan((Stage(micro_batches=8),), batch_warmup_steps=8, batch_warmup_start=2)
    sizes = [plan.locate(step, 20).count for step in range(10)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[7], sizes[8]) == (2, 6, 8)


def test_stages_begin_at_their_share_and_not_before_the_length_is_known() -> None:
    plan = StepPlan((Stage(share=0.9), Stage(max_length=512, share=0.1)))
    assert [plan.locate(step, 100).stage for step in (0, 89, 90, 99)] == [0, 0, 1, 1]
    assert plan.locate(90, 100).first == 0
    assert plan.locate(95, None).stage == 0


def test_plans_that_cannot_be_are_refused() -> None:
    with pytest.raises(BertkitError, match="add up to 1"):
        StepPlan((Stage(share=0.5),))
    with pytest.raises(BertkitError, match="do not divide among 2"):
        StepPlan((Stage(micro_batches=3),)).check_world(2)
    with pytest.raises(BertkitError, match="no multiple"):
        StepPlan((Stage(micro_batches=3),), 10, 2)
    with pytest.raises(BertkitError, match="not even one sequence"):
        Stage(max_length=128, tokens_per_batch=100)
    with pytest.raises(BertkitError, match="tokens_per_batch is 2147483648; it must be at most"):
        Stage(tokens_per_batch=2**31)
    with pytest.raises(BertkitError, match="micro_batches is 100001; it must be at least 1 and at most 100,000"):
        Stage(micro_batches=100_001)


def test_the_linear_rate_rises_and_falls() -> None:
    schedule = ScheduleConfig(warmup_share=0.1)
    rates = [schedule.factor(step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(1 / 90)


def test_the_stable_rate_stays_and_then_falls() -> None:
    schedule = ScheduleConfig(shape="wsd", warmup_share=0.1, decay_share=0.2, final=0.1)
    rates = [schedule.factor(step, 100) for step in range(101)]
    assert set(rates[9:81]) == {1.0}
    assert rates[90] == pytest.approx(0.55)
    assert rates[100] == pytest.approx(0.1)


def test_a_warm_up_in_steps_is_as_long_in_any_run() -> None:
    schedule = ScheduleConfig(warmup_steps=10)
    for total in (50, 100):
        rates = [schedule.factor(step, total) for step in range(total)]
        assert rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
        assert rates[10] == 1.0
        assert rates[-1] == pytest.approx(1 / (total - 10))
    assert schedule.factor(3.7, 100, taken=5) == pytest.approx(0.6)  # a time budget counts the steps really done
    with pytest.raises(BertkitError, match="warmup_steps is -1"):
        ScheduleConfig(warmup_steps=-1)
