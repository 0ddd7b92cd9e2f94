"""The course of a comparison: who is ahead at each look along the runs, so that a slow start and a better end both show.

In: a result whose tasks were measured on the way, by at least three seeds. Out: a table of differences from the baseline,
look by look, and a sentence for each arm on the first look and the last.
"""

from bertkit.studies.study.noise import Difference, compare_groups
from bertkit.studies.study.result import Arm, Curve, Measure, StudyResult, TextTable
from bertkit.text.counted import counted

Course = dict[float, Difference]  # by the place along the run


def find_courses(result: StudyResult) -> dict[tuple[str, str], Course]:
    """Arm and measure to differences from the baseline, where both were looked at more than once by enough seeds."""
    curves = {(curve.arm, curve.measure): curve for curve in result.curves}
    found = {}
    for measure in result.measures:
        base = curves.get((result.baseline, measure.name))
        for arm in result.arms if base else ():
            curve = curves.get((arm.name, measure.name))
            course = _differences(curve, base) if curve and base and arm.name != result.baseline else {}
            if len(course) > 1 and all(one.p is not None for one in course.values()):
                found[arm.name, measure.name] = course
    return found


def _differences(curve: Curve, base: Curve) -> Course:
    theirs = {point.x: tuple(point.values.values()) for point in base.points}
    return {p.x: compare_groups(tuple(p.values.values()), theirs[p.x]) for p in curve.points if p.x in theirs}


def course_table(result: StudyResult) -> TextTable | None:
    """A row an arm and measure, a column a look; None where nothing was measured on the way."""
    courses = find_courses(result)
    if not courses:
        return None
    places = sorted({place for course in courses.values() for place in course})
    labels, measures = {arm.name: arm.label for arm in result.arms}, {one.name: one for one in result.measures}
    rows = tuple(
        (labels[arm], name, *(_cell(course.get(place), measures[name]) for place in places))
        for (arm, name), course in courses.items()
    )
    title = f"Differences from “{labels[result.baseline]}” along the runs"
    return TextTable(title, ("arm", "measure", *(f"#after {place:,.0f} steps" for place in places)), rows)


def _cell(found: Difference | None, measure: Measure) -> str:
    if found is None:
        return "–"
    mark = "≈" if not found.is_outside_noise else "▲" if is_better(found, measure) else "▼"
    return f"{found.value:+.{measure.decimals}f} {mark}"


def is_better(found: Difference, measure: Measure) -> bool:
    """Whether the difference is for the better."""
    return (found.value > 0) != measure.lower_is_better


def course_paragraph(result: StudyResult) -> str:
    """Who was ahead at first and who in the end, outside the noise; empty where nothing was measured on the way."""
    courses = find_courses(result)
    said = [_arm_said(result, arm, courses) for arm in result.arms if any(name == arm.name for name, _ in courses)]
    return f"Along the runs, against {_label(result, result.baseline)}: {'; '.join(said)}." if said else ""


def _label(result: StudyResult, name: str) -> str:
    return next(f"“{arm.label}”" for arm in result.arms if arm.name == name)


def _arm_said(result: StudyResult, arm: Arm, courses: dict[tuple[str, str], Course]) -> str:
    own = {name: course for (owner, name), course in courses.items() if owner == arm.name}
    places = sorted({place for course in own.values() for place in course})
    measures = {measure.name: measure for measure in result.measures}
    looks = []
    for place, when in ((places[0], f"after {places[0]:,.0f} steps"), (places[-1], f"after {places[-1]:,.0f}")):
        seen = [(measures[name], course[place]) for name, course in own.items() if place in course]
        outside = [is_better(one, measure) for measure, one in seen if one.is_outside_noise]
        counts = f"better in {sum(outside)} and worse in {len(outside) - sum(outside)} of {counted(len(seen), 'task')}"
        looks.append(f"{counts} {when}")
    return f"“{arm.label}” is {', '.join(looks)}"
