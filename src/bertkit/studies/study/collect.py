"""Stored parts of a study become its result: scores by arm, measure and seed, curves along the runs, honest notes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bertkit.studies.study.config import ArmRecipe
from bertkit.studies.study.measuring import Measurement
from bertkit.studies.study.moments import moment_agreement, moment_arms, moment_scores, of_whole_run
from bertkit.studies.study.perplexity import NEXT_TOKEN, NO_PAIRS, PERPLEXITY, perplexity_of
from bertkit.studies.study.request import StudyRequest
from bertkit.studies.study.result import Arm, Curve, Point, Score, StudyResult
from bertkit.studies.study.runs import PlannedRun
from bertkit.studies.study.wording import about_machine, about_runs, missing_notes, result_of
from bertkit.studies.suite_parts import read_json
from bertkit.tokenizer import Tokenizer

HELD_OUT = {  # name of a curve: the journal's key, unit, whether lower is better, factor
    "held-out loss": ("mlm_loss", "nats", True, 1.0),
    "held-out accuracy": ("mlm_accuracy", "%", False, 100.0),
    "held-out NSP accuracy": ("nsp_accuracy", "%", False, 100.0),
}
TRAINING = "training loss (predicted tokens)"


@dataclass(frozen=True)
class StudyPlan:
    """Everything that a study consists of, done or not."""

    runs: Sequence[PlannedRun]
    measurements: Sequence[Measurement]

    @property
    def missing(self) -> list[str]:
        """What is not done yet, in words."""
        runs = [f"pre-training {run.arm}, seed {run.seed}" for run in self.runs if not run.is_measured]
        return runs + [one.job(1.0).name for one in self.measurements if not one.is_done]


def collect(request: StudyRequest, plan: StudyPlan) -> StudyResult:
    """What is stored so far."""
    recipe = request.recipe
    done = [run for run in plan.runs if run.is_measured]
    found = [one for one in plan.measurements if one.is_done]
    by_moment = recipe.looks_are_arms
    arms = moment_arms(request) if by_moment else [as_arm(arm) for arm in recipe.arms_at(request.scale_name)]
    scores = (
        moment_scores(request.scale.looks, done, found) if by_moment else [*perplexities(done), *final_scores(found)]
    )
    names = {score.measure for score in scores}
    measures = dict.fromkeys([PERPLEXITY, NEXT_TOKEN, NO_PAIRS, *(one.measure for one in plan.measurements)])
    curves = [*training_curves(done), *held_out_curves(done), *task_curves(found)]
    result = result_of(
        request,
        arms=arms,
        baseline=recipe.baseline or arms[0].name,
        measures=[measure for measure in measures if measure.name in names],
        scores=scores,
        curves=[of_whole_run(curve) for curve in curves] if by_moment else curves,
        notes=(*request.scale.notes, *recipe.notes, *collapsed_notes(found), *missing_notes(plan.missing)),
        about=about(request, done, found),
    )
    return replace(result, agreement=moment_agreement(result)) if by_moment else result


def collapsed_notes(measurements: Sequence[Measurement]) -> list[str]:
    """Which scores are those of a model that gives one answer to everything, a line a measure."""
    by_measure: dict[str, list[bool]] = {}
    for one in measurements:
        by_measure.setdefault(one.measure.name, []).append(bool(read_json(one.path).get("collapsed")))
    said = "give one answer to everything, or failed; such scores tell nothing about pre-training."
    return [f"{name}: {sum(all_)} of {len(all_)} models {said}" for name, all_ in by_measure.items() if any(all_)]


def as_arm(arm: ArmRecipe) -> Arm:
    """As the result has it."""
    return Arm(arm.name, arm.label, dict(arm.set))


def perplexities(runs: Iterable[PlannedRun]) -> list[Score]:
    """At the end of each run."""
    return [Score(run.arm, perplexity_of(run).name, run.seed, run.result()["perplexity"]) for run in runs]


def final_scores(measurements: Iterable[Measurement]) -> list[Score]:
    """Of the tasks, at the end of each run."""
    return [Score(one.run.arm, one.measure.name, one.run.seed, one.score) for one in measurements if one.look == 1.0]


def training_curves(runs: Sequence[PlannedRun]) -> list[Curve]:
    """The loss of predicted tokens along the runs, which shows their beginning more finely."""
    rows: dict[str, list[tuple[int, int, float]]] = {}
    for run in runs:
        lines = run.result()["training"]
        rows.setdefault(run.arm, []).extend((line["step"], run.seed, line["mlm_loss"]) for line in lines)
    return [Curve(arm, TRAINING, _points(found), "steps", "nats", True) for arm, found in rows.items()]


def held_out_curves(runs: Sequence[PlannedRun]) -> list[Curve]:
    """Figures on held-out text along the runs, by arm."""
    results = [(run, run.result()["evaluations"]) for run in runs]
    curves = []
    for arm in dict.fromkeys(run.arm for run in runs):
        for name, (key, unit, lower, factor) in HELD_OUT.items():
            if key == "nsp_accuracy" and not all(r.recipe.data.next_sentence for r in runs if r.arm == arm):
                continue
            rows = [
                (line["step"], run.seed, factor * line[key])
                for run, lines in results
                if run.arm == arm
                for line in lines
            ]
            curves.append(Curve(arm, name, _points(rows), "steps", unit, lower))
    return curves


def task_curves(measurements: Sequence[Measurement]) -> list[Curve]:
    """Scores of tasks along the runs, where they were measured more than once."""
    rows: dict[tuple[str, str], list[tuple[int, int, float]]] = {}
    for one in measurements:
        place = (one.run.arm, one.measure.name)
        rows.setdefault(place, []).append((round(one.look * one.run.steps), one.run.seed, one.score))
    curves = [Curve(arm, name, _points(found), "steps", "points") for (arm, name), found in rows.items()]
    return [curve for curve in curves if len(curve.points) > 1]


def _points(rows: Iterable[tuple[int, int, float]]) -> tuple[Point, ...]:
    values: dict[int, dict[str, float]] = {}
    for x, seed, value in sorted(rows):
        values.setdefault(x, {})[str(seed)] = value
    return tuple(Point(float(x), found) for x, found in values.items())


def about(request: StudyRequest, runs: Sequence[PlannedRun], measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Where and with what it was measured, and how long that took."""
    seconds = sum(run.result()["seconds"] for run in runs)
    seconds += sum(read_json(one.path).get("seconds", 0.0) for one in measurements)
    vocabulary = {"vocabulary": Tokenizer.load(runs[0].recipe.data.tokenizer).vocab_size} if runs else {}
    return {**about_machine(request, seconds), **about_runs(runs), **vocabulary}
