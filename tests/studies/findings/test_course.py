"""Differences along the runs: who is ahead at each look, said only where seeds are enough."""

from bertkit.studies.findings.agreement import agreement_paragraphs
from bertkit.studies.findings.course import course_paragraph, course_table, find_courses
from bertkit.studies.findings.document import study_text
from bertkit.studies.study.result import Curve, Point
from tests.studies.findings.made_up import make_result

PLACES = {250.0: (-4.0, 1.0), 2000.0: (5.0, -5.0)}  # left to right less both sides: SST-2 accuracy, perplexity


def curves(num_seeds: int = 3) -> tuple[Curve, ...]:
    """Both sides at 60 and 9 with a spread of 1 and 0.1; left to right begins better and ends worse, or the reverse."""

    def points(level: float, width: float, shifts: dict[float, float]) -> tuple[Point, ...]:
        seeds = range(num_seeds)
        return tuple(Point(x, {str(s): level + shift + width * (s - 1) for s in seeds}) for x, shift in shifts.items())

    flat = dict.fromkeys(PLACES, 0.0)
    names = (("SST-2 accuracy", 60.0, 1.0), ("held-out perplexity", 9.0, 0.1))
    base = [Curve("mlm", name, points(level, width, flat)) for name, level, width in names]
    shifts = [{x: pair[place] for x, pair in PLACES.items()} for place in (0, 1)]
    other = [Curve("ltr", name, points(level, width, shifts[n])) for n, (name, level, width) in enumerate(names)]
    return (*base, *other, Curve("ltr", "training loss", points(5.0, 0.1, flat)))


def test_every_look_is_compared_with_the_baselines() -> None:
    table = course_table(make_result(curves=curves()))
    assert table is not None
    assert table.columns == ("arm", "measure", "#after 250 steps", "#after 2,000 steps")
    assert table.rows == (
        ("left to right", "SST-2 accuracy", "-4.0 ▼", "+5.0 ▲"),
        ("left to right", "held-out perplexity", "+1.00 ▼", "-5.00 ▲"),  # a lower one is better
    )


def test_a_slow_start_and_a_better_end_are_both_said() -> None:
    said = (
        "Along the runs, against “both sides”: “left to right” is better in 0 and worse in 2 of 2 tasks after 250 steps, "
        "better in 2 and worse in 0 of 2 tasks after 2,000."
    )
    result = make_result(curves=curves())
    assert course_paragraph(result) == said
    assert agreement_paragraphs(result)[-1] == said
    assert "| left to right | SST-2 accuracy | -4.0 ▼ | +5.0 ▲ |" in "\n".join(study_text(result, []))


def test_nothing_is_said_of_too_few_seeds_or_one_look() -> None:
    one_look = tuple(Curve(c.arm, c.measure, c.points[:1]) for c in curves())
    for found in (curves(2), one_look, ()):
        result = make_result(curves=found)
        assert find_courses(result) == {}
        assert course_table(result) is None
        assert course_paragraph(result) == ""


def test_an_arm_within_the_noise() -> None:
    close = tuple(Curve(c.arm, c.measure, curves()[0].points) for c in curves() if c.measure == "SST-2 accuracy")
    table = course_table(make_result(curves=close))
    assert table is not None
    assert table.rows == (("left to right", "SST-2 accuracy", "+0.0 ≈", "+0.0 ≈"),)
