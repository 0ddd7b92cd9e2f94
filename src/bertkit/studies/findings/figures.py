"""From a study's result to the page: means, spreads, differences and verdicts as plain figures."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bertkit.pages.study import StudyFigures, study_page
from bertkit.studies.findings.agreement import agreement_paragraphs, agreement_table, in_short
from bertkit.studies.findings.course import course_table
from bertkit.studies.study.result import Arm, Measure, StudyResult


def page_of(results: Sequence[StudyResult]) -> str:
    """One HTML page for all of them."""
    return study_page([study_figures(result) for result in results])


def study_figures(result: StudyResult) -> StudyFigures:
    """Everything that the page shows."""
    return StudyFigures(
        name=result.name,
        scale=result.scale,
        question=result.question,
        claim=result.claim,
        paper=[asdict(table) for table in result.paper],
        arms=[{"name": arm.name, "label": arm.label, "settings": settings_line(arm)} for arm in result.arms],
        baseline=result.baseline,
        measures=[asdict(measure) for measure in result.measures],
        cells={arm.name: arm_cells(result, arm) for arm in result.arms},
        curves=[asdict(curve) for curve in result.curves if curve.points],
        tables=[asdict(table) for table in result.tables],
        agreement=agreement_paragraphs(result),
        in_short=in_short(result),
        comparison=asdict(beside) if (beside := agreement_table(result)) else None,
        course=asdict(course) if (course := course_table(result)) else None,
        remark=result.remark,
        notes=list(result.notes),
        command=result.command,
        about=[(str(name), str(value)) for name, value in result.about.items()],
        test=result.test,
    )


def settings_line(arm: Arm) -> str:
    """In which an arm differs, on one line."""
    return ", ".join(f"{name} = {value}" for name, value in arm.settings.items())


def arm_cells(result: StudyResult, arm: Arm) -> dict[str, dict[str, Any]]:
    """One arm by every measure that it has."""
    found = {measure.name: _cell(result, arm, measure) for measure in result.measures}
    return {name: cell for name, cell in found.items() if cell is not None}


def _cell(result: StudyResult, arm: Arm, measure: Measure) -> dict[str, Any] | None:
    summary, difference = result.summary(arm.name, measure.name), result.difference(arm.name, measure.name)
    if summary is None:
        return None
    best = best_arm(result, measure)
    behind = None if best is None else result.difference(arm.name, measure.name, best)
    return {
        "mean": summary.mean,
        "spread": summary.spread,
        "num_seeds": summary.num_seeds,
        "interval": summary.interval,
        "values": list(result.values(arm.name, measure.name)),
        "difference": None if difference is None else difference.value,
        "p": None if difference is None else difference.p,
        "outside": None if difference is None else difference.is_outside_noise,
        "better": None if difference is None else (difference.value > 0) != measure.lower_is_better,
        "is_best": arm.name == best,
        "behind_best": None if behind is None else behind.is_outside_noise,
    }


def best_arm(result: StudyResult, measure: Measure) -> str | None:
    """The arm with the best mean; None where nothing was measured."""
    means = {arm.name: found.mean for arm in result.arms if (found := result.summary(arm.name, measure.name))}
    choose = min if measure.lower_is_better else max
    return choose(means, key=lambda name: means[name]) if means else None
