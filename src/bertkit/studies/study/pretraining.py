"""The studies that pre-train: arms by seeds, each trained by the product's own run, then measured on the suite's tasks.

Two kinds of jobs: runs, and what they are worth. Each is stored when it is done; the same call goes on with what is
missing, also where the weights are gone but all their measurements are there. Where the weights are gone too early, only
runs whose measurements are not complete are trained again.
"""

from bertkit.errors import BertkitError
from bertkit.model.config import BertConfig
from bertkit.studies.study.collect import StudyPlan, collect
from bertkit.studies.study.estimate import measurement_seconds
from bertkit.studies.study.measuring import Measurement
from bertkit.studies.study.request import StudyOutcome, StudyRequest
from bertkit.studies.study.runs import PlannedRun, plan_runs
from bertkit.studies.study.text import study_text
from bertkit.studies.study.work import train_and_measure
from bertkit.tokenizer import Tokenizer


def run_pretraining_study(request: StudyRequest) -> StudyOutcome:
    """Train what is missing, measure what is missing, and collect."""
    plan, vocab_size = plan_study(request)
    stopped = work(request, plan, vocab_size)
    result = collect(request, plan)
    result.write(request.folder)
    return StudyOutcome(result, request.folder, tuple(plan.missing), stopped)


def plan_study(request: StudyRequest) -> tuple[StudyPlan, int]:
    """All runs and measurements of the request, and the size of the vocabulary."""
    text = study_text(request)
    runs = plan_runs(request, text)
    return StudyPlan(runs, plan_measurements(request, runs)), Tokenizer.load(text.tokenizer).vocab_size


def plan_measurements(request: StudyRequest, runs: list[PlannedRun]) -> list[Measurement]:
    """Every task at every look of every run."""
    scale, suite = request.scale, request.suite
    uses = [(use, use.of(suite)) for use in scale.tasks]
    for use, task in uses:
        if use.way == "features" and task.task != "tagging":
            raise BertkitError(f"task {use.name}: frozen features are measured on tagging; choose way = 'finetune'")
    return [
        Measurement(run, look, use, task, request.data, suite.dropout, request.device)
        for run in runs
        for look in scale.looks
        for use, task in uses
    ]


def work(request: StudyRequest, plan: StudyPlan, vocab_size: int) -> str | None:
    """Do what is missing; what stopped it, where something did."""
    open_tasks = list({one.path: one for one in plan.measurements if not one.is_done}.values())  # equal arms: once
    needing = {one.run.name for one in open_tasks}
    open_runs = [run for run in plan.runs if not (run.has_weights if run.name in needing else run.is_measured)]
    parts = [(one.job(measurement_seconds(one, _config(one, vocab_size))), one.run) for one in open_tasks]
    return train_and_measure(request, open_runs, parts, vocab_size)


def _config(one: Measurement, vocab_size: int) -> BertConfig:
    return one.run.recipe.model.config(vocab_size, next_sentence=True)
