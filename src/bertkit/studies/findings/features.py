"""`features`: fine-tuning against frozen features on tagging (table 7 and section 5.3 of the paper).

In: a pre-trained model a seed. Out: entity F1 of the fine-tuned model and of the paper's BiLSTM on the frozen vectors of
each choice of layers. Both are measurements of study/measuring.py, so that other studies share them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bertkit.errors import BertkitError
from bertkit.studies.findings.parts import about_models, config_of, measure_models, plan_models, scale_notes
from bertkit.studies.study.collect import collapsed_notes
from bertkit.studies.study.config import TaskUse
from bertkit.studies.study.estimate import measurement_seconds
from bertkit.studies.study.measuring import Measurement, measure_name
from bertkit.studies.study.request import StudyOutcome, StudyRequest
from bertkit.studies.study.result import Arm, Measure, Score, StudyResult
from bertkit.studies.study.runs import PlannedRun
from bertkit.studies.study.text import study_text
from bertkit.studies.study.wording import about_machine, missing_notes, result_of
from bertkit.studies.suite_parts import read_json

FINETUNED, LAST = "finetuned", 4  # the baseline's name, and how many layers the paper joins


@dataclass(frozen=True)
class Choice:
    """Which vectors a head reads."""

    arm: str
    label: str
    layer: str = ""  # as in `bertkit features`; empty: the whole model is fine-tuned


def choices_for(num_layers: int) -> list[Choice]:
    """The rows of table 7 and a plain sum; a model of fewer than four layers joins what it has."""
    last = min(LAST, num_layers)
    found = [Choice(FINETUNED, "fine-tuned"), Choice("embeddings", "embeddings", "embeddings")]
    if num_layers > 1:
        found += [
            Choice("second-to-last", "second to last layer", "second-to-last"),
            Choice("last", "last layer", "last"),
            Choice("sum-last", f"sum of the last {last}", f"sum-last-{last}"),
            Choice("weighted-last", f"weighted sum of the last {last}", f"weighted-last-{last}"),
            Choice("concat-last", f"last {last} side by side", f"concat-last-{last}"),
        ]
    else:
        found.append(Choice("last", "the only layer", "last"))
    if num_layers > LAST:
        found.append(Choice("weighted-all", f"weighted sum of all {num_layers}", "weighted-all"))
    return found


def run_features_study(request: StudyRequest) -> StudyOutcome:
    """Pre-train what is missing, fine-tune, train heads, and collect."""
    text = None if request.finished_models else study_text(request)
    runs = plan_models(request, text, request.scale.seeds)  # heads differ by seed also on one model
    config = config_of(runs[0], text)
    choices = choices_for(config.num_layers)
    plan = {(choice.arm, run.seed): _measurement(request, run, choice) for run in runs for choice in choices}
    parts = [
        (replace(one.job(measurement_seconds(one, config)), name=_said(*place)), one.run)
        for place, one in plan.items()
        if not one.is_done
    ]
    stopped = measure_models(request, runs, parts, config.vocab_size)
    missing = tuple(_said(*place) for place, one in plan.items() if not one.is_done)
    result = collect_features(request, choices, runs, plan, missing)
    result.write(request.folder)
    return StudyOutcome(result, request.folder, missing, stopped)


def _said(arm: str, seed: int) -> str:
    return f"{arm}, seed {seed}"


def _uses(request: StudyRequest) -> tuple[TaskUse, TaskUse]:
    """The task fine-tuned, and with features; the scale names both, or one that both follow."""
    uses = {use.way: use for use in request.scale.tasks}
    if not uses:
        raise BertkitError("the study of features needs a tagging task: name one in [[scale.NAME.tasks]]")
    first = next(iter(uses.values()))
    return uses.get("finetune", replace(first, way="finetune")), uses.get("features", replace(first, way="features"))


def _measurement(request: StudyRequest, run: PlannedRun, choice: Choice) -> Measurement:
    finetune, features = _uses(request)
    use = replace(features, layer=choice.layer) if choice.layer else finetune
    task = use.of(request.suite)
    if task.task != "tagging":
        raise BertkitError(f"task {task.name} is no tagging task; the study of features needs one")
    return Measurement(run, 1.0, use, task, request.data, request.suite.dropout, request.device)


def collect_features(
    request: StudyRequest,
    choices: Sequence[Choice],
    runs: Sequence[PlannedRun],
    plan: Mapping[tuple[str, int], Measurement],
    missing: Sequence[str] = (),
) -> StudyResult:
    """What is stored so far."""
    done = {place: one for place, one in plan.items() if one.is_done}
    finetune, _ = _uses(request)
    measure = Measure(measure_name(finetune, finetune.of(request.suite)), "points")
    seconds = sum(read_json(one.path).get("seconds", 0.0) for one in done.values())
    return result_of(
        request,
        arms=[Arm(choice.arm, choice.label, {"layer": choice.layer or "all, trained"}) for choice in choices],
        baseline=FINETUNED,
        measures=[measure],
        scores=[Score(arm, measure.name, seed, one.score) for (arm, seed), one in done.items()],
        notes=(
            *scale_notes(request),
            *request.recipe.notes,
            *collapsed_notes(tuple(done.values())),
            *missing_notes(missing),
        ),
        about={**about_machine(request, seconds), **about_models(runs)},
    )
