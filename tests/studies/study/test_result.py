"""A study's result: round trip, means and spreads, and what counts as outside the noise."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bertkit.errors import BertkitError
from bertkit.studies.study.noise import (
    Difference,
    compare_drawn,
    compare_groups,
    incomplete_beta,
    student_tail,
    welch_p,
)
from bertkit.studies.study.result import (
    Arm,
    Curve,
    Draws,
    Measure,
    PaperRow,
    PaperTable,
    Point,
    Score,
    StudyResult,
    TextTable,
    read_result,
)

MLM, LTR = (91.0, 92.0, 93.0), (71.0, 72.0, 73.5)


def example() -> StudyResult:
    return StudyResult(
        name="direction",
        scale="minutes",
        question="Does it help to see both sides?",
        claim="It does.",
        paper=(PaperTable("table 5", ("SST-2",), (PaperRow("LTR", {"SST-2": 92.1}, "ltr"),)),),
        arms=(Arm("mlm", "both directions", {"objective": "mlm"}), Arm("ltr", "left to right")),
        baseline="mlm",
        measures=(Measure("SST-2", "points"), Measure("held-out loss", "nats", lower_is_better=True, decimals=3)),
        scores=tuple(
            Score(arm, "SST-2", seed, value)
            for arm, values in (("mlm", MLM), ("ltr", LTR))
            for seed, value in reversed(list(enumerate(values)))
        ),
        curves=(Curve("mlm", "loss", (Point(10, {"0": 6.0, "1": 8.0}), Point(20, {"0": 5.0})), "steps", "nats"),),
        tables=(TextTable("cosines", ("a", "b"), (("1", "2"), ("3", "4"))),),
        notes=("tiny",),
        command="bertkit study direction",
        about={"device": "CPU", "minutes": 3.5},
    )


def test_a_result_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    result = example()
    path = result.write(tmp_path / "direction")
    assert read_result(path) == read_result(tmp_path / "direction") == result
    assert json.loads(path.read_text())["scores"][0]["arm"] == "mlm"


def test_means_spreads_and_differences() -> None:
    result = example()
    assert result.values("ltr", "SST-2") == LTR
    summary = result.summary("mlm", "SST-2")
    assert summary is not None
    assert (summary.mean, summary.spread, summary.num_seeds) == (92.0, 1.0, 3)
    found = result.difference("ltr", "SST-2")
    assert found is not None
    assert found.value == pytest.approx(-19.8333, abs=1e-3)
    assert found.is_outside_noise
    assert result.summary("mlm", "held-out loss") is None
    assert result.difference("mlm", "held-out loss") is None
    assert result.curves[0].points[0].mean == 7.0


def test_two_seeds_claim_nothing() -> None:
    found = compare_groups((1.0, 1.1), (9.0, 9.1))
    assert found.value == pytest.approx(-8.0)
    assert found.p is None
    assert found.is_outside_noise is None


def test_overlapping_groups_are_inside_the_noise() -> None:
    assert compare_groups((80.0, 82.0, 84.0), (81.0, 83.0, 85.0)).is_outside_noise is False


def test_draws_of_examples_are_compared_in_pairs() -> None:
    """One run a side: the same examples are hard for both, so the difference is surer than the figures."""
    hard = [step / 10 for step in range(-20, 21)]
    drawn = (
        Draws("mlm", "SST-2", tuple(92.0 + one for one in hard)),
        Draws("ltr", "SST-2", tuple(91.0 + 0.9 * one for one in hard)),
    )
    once = (Score("mlm", "SST-2", 0, 92.0), Score("ltr", "SST-2", 0, 91.0))
    result = replace(example(), scores=once, draws=drawn)
    summary = result.summary("mlm", "SST-2")
    assert summary is not None
    assert (summary.mean, summary.num_seeds, summary.has_spread) == (92.0, 1, True)
    assert summary.spread == pytest.approx(1.2, abs=0.01)
    assert summary.interval == pytest.approx((90.1, 93.9))
    found = result.difference("ltr", "SST-2")
    assert found is not None
    assert found.value == -1.0
    assert found.is_outside_noise
    assert StudyResult.from_json(result.to_json()) == result
    alone = replace(result, draws=drawn[:1]).difference("ltr", "SST-2")
    assert alone is not None
    assert alone.is_outside_noise is None  # one of them has no noise to be held against


def test_the_p_of_draws_agrees_with_scipy() -> None:
    differences = [-1.0, 1.0] * 50
    found = compare_drawn(2.0, differences)
    assert found.p == pytest.approx(2 * stats.norm.sf(2.0), abs=2e-3)
    assert compare_drawn(9.0, differences).p == 0.01  # a hundred draws cannot tell less
    assert compare_drawn(0.0, [0.0] * 100) == Difference(0.0, 1.0, False)
    assert compare_drawn(0.5, [0.5] * 100) == Difference(0.5, 0.01, True)


def test_groups_without_spread() -> None:
    assert welch_p((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)) == 1.0
    assert welch_p((1.0, 1.0, 1.0), (2.0, 2.0, 2.0)) == 0.0


numbers = st.lists(st.integers(-1000, 1000).map(lambda value: value / 10), min_size=3, max_size=8, unique=True)


@given(numbers, numbers)
def test_welch_agrees_with_scipy(group: list[float], other: list[float]) -> None:
    expected = float(stats.ttest_ind(group, other, equal_var=False).pvalue)
    assert welch_p(group, other) == pytest.approx(expected, abs=1e-7)


@given(st.floats(-50, 50), st.floats(1, 200))
def test_students_tail_agrees_with_scipy(t: float, freedom: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(float(2 * stats.t.sf(abs(t), freedom)), abs=1e-7)


def test_the_ends_of_the_beta_function() -> None:
    assert incomplete_beta(2.0, 3.0, 0.0) == 0.0
    assert incomplete_beta(2.0, 3.0, 1.0) == 1.0


@pytest.mark.parametrize(
    "changes",
    [
        {"baseline": "none"},
        {"arms": (Arm("mlm", "a"), Arm("mlm", "b"))},
        {"scores": (Score("mlm", "no such measure", 0, 1.0),)},
        {"scores": (Score("mlm", "SST-2", 0, 1.0), Score("mlm", "SST-2", 0, 2.0))},
    ],
)
def test_a_result_that_contradicts_itself_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BertkitError, match="direction"):
        replace(example(), **changes)  # type: ignore[arg-type]


def test_a_missing_result_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="bertkit study"):
        read_result(tmp_path)
