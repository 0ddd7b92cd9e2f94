"""Moments of one run in the place of arms (appendix C.1 of the paper): does a model still gain at the end of its run?"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bertkit.studies.study.measuring import Measurement
from bertkit.studies.study.perplexity import perplexity_of
from bertkit.studies.study.request import StudyRequest
from bertkit.studies.study.result import Arm, Curve, Score, StudyResult
from bertkit.studies.study.runs import PlannedRun

MOMENTS = {0.125: "1/8", 0.25: "1/4", 0.5: "1/2", 1.0: "all"}


def moment_arms(request: StudyRequest) -> list[Arm]:
    """Moments of one run in place of arms."""
    return [
        Arm(MOMENTS[look], f"{MOMENTS[look]} of the steps" if look < 1.0 else "all steps", {"share": look})
        for look in request.scale.looks
    ]


def moment_scores(
    looks: Sequence[float], runs: Iterable[PlannedRun], measurements: Iterable[Measurement]
) -> list[Score]:
    """Of every moment, as if it were an arm."""
    scores = [Score(MOMENTS[one.look], one.measure.name, one.run.seed, one.score) for one in measurements]
    for run in runs:
        at = {line["step"]: line["perplexity"] for line in run.result()["evaluations"]}
        steps = {look: round(look * run.steps) for look in looks}
        scores += [
            Score(MOMENTS[look], perplexity_of(run).name, run.seed, at[step])
            for look, step in steps.items()
            if step in at
        ]
    return scores


def of_whole_run(curve: Curve) -> Curve:
    """A curve is along all steps, so it belongs to the moment at their end."""
    return replace(curve, arm=MOMENTS[1.0])


def moment_agreement(result: StudyResult) -> tuple[str, ...]:
    """The paper says that its second half still gained: what the second half gains here, measure by measure."""
    half, whole = MOMENTS[0.5], MOMENTS[1.0]
    gains = []
    for measure in result.measures:
        found = result.difference(whole, measure.name, half)
        if found is not None:
            known = {None: "too few seeds", False: "within the noise"}
            is_better = (found.value > 0) != measure.lower_is_better
            verdict = known.get(found.is_outside_noise, "better" if is_better else "worse")
            gains.append(f"{measure.name} {found.value:+.{measure.decimals}f} ({verdict})")
    head = "In the paper the second half of the steps still gains almost a point of MNLI. Here the second half changes"
    return (f"{head}: {'; '.join(gains)}.",) if gains else ()
