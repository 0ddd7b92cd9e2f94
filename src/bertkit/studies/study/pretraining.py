"""The studies that pre-train: arms by seeds, each trained by the product's own run, then measured on the suite's tasks.

Two kinds of jobs: runs, and what they are worth. Each is stored when it is done; the same call goes on with what is
missing, also where the weights are gone but all their measurements are there. Where the weights are gone too early, only
runs whose measurements are not complete are trained again.
"""

from dataclasses import replace

from bertkit.cores import num_cores
from bertkit.errors import BertkitError
from bertkit.model.config import BertConfig
from bertkit.studies.jobs import Job, run_jobs
from bertkit.studies.study.collect import StudyPlan, collect
from bertkit.studies.study.estimate import about_minutes, measurement_seconds, run_seconds, total_seconds
from bertkit.studies.study.measuring import Measurement
from bertkit.studies.study.request import StudyOutcome, StudyRequest, Text
from bertkit.studies.study.runs import TRAINING, PlannedRun, plan_runs
from bertkit.studies.study.text import study_text
from bertkit.studies.suite_live import SuiteLine
from bertkit.tokenizer import Tokenizer
from bertkit.training.watch import StopRequest, catch_signals
from bertkit.training.world import choose_device

GPU_RUNS, GPU_MEASUREMENTS = 4, 8  # processes that share one GPU


def run_pretraining_study(request: StudyRequest) -> StudyOutcome:
    """Train what is missing, measure what is missing, and collect."""
    plan, vocab_size = plan_study(request)
    with catch_signals() as stop:
        work(request, plan, vocab_size, stop)
    result = collect(request, plan)
    result.write(request.folder)
    stopped = stop.name or ("the time limit" if plan.missing else None)
    return StudyOutcome(result, request.folder, tuple(plan.missing), stopped)


def plan_study(request: StudyRequest) -> tuple[StudyPlan, int]:
    """All runs and measurements of the request, and the size of the vocabulary."""
    text = study_text(request)
    runs = plan_runs(request, text)
    return StudyPlan(runs, plan_measurements(request, runs)), vocabulary_of(text)


def vocabulary_of(text: Text) -> int:
    """How many tokens there are."""
    return Tokenizer.load(text.tokenizer).vocab_size


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


def work(request: StudyRequest, plan: StudyPlan, vocab_size: int, stop: StopRequest) -> None:
    """Do what is missing, until the end, a signal, or the time that was given."""
    open_tasks = [one for one in plan.measurements if not one.is_done]
    needing = {one.run.name for one in open_tasks}
    open_runs = _unique([run for run in plan.runs if not (run.has_weights if run.name in needing else run.is_measured)])
    runs = [run.job(run_seconds(run, vocab_size)) for run in open_runs]
    names = {run.name: run.said for run in open_runs}
    tasks = [
        replace(one.job(measurement_seconds(one, _config(one, vocab_size))), after=names.get(one.run.name, ""))
        for one in open_tasks
    ]
    workers = choose_workers(request)
    seconds = total_seconds((j.weight for j in runs), (j.weight for j in tasks), _device(request), workers)

    def should_stop() -> bool:
        return stop.name is not None or request.is_late

    with SuiteLine([*runs, *tasks], shown=request.shown) as line:
        if runs or tasks:
            line.print(estimate_line(request, runs, tasks, seconds))
        # A GPU may be lent, and weights go with it: what has been trained is measured first. Else cores are never idle.
        lent = _device(request) != "cpu"
        run_jobs([*runs, *tasks], max(workers), line, should_stop, {TRAINING: workers[0]}, finish_first=lent)


def _unique(runs: list[PlannedRun]) -> list[PlannedRun]:
    """Arms that are the same computation are trained once."""
    return list({run.name: run for run in runs}.values())


def _config(one: Measurement, vocab_size: int) -> BertConfig:
    return one.run.recipe.model.config(vocab_size, next_sentence=True)


def _device(request: StudyRequest) -> str:
    return choose_device(request.device).type


def choose_workers(request: StudyRequest) -> tuple[int, int]:
    """Processes for runs and for measurements: a core each on CPUs, several that share a GPU."""
    if request.workers:
        return request.workers, request.workers
    cores = num_cores()
    if _device(request) == "cpu":
        return cores, cores
    return max(1, min(GPU_RUNS, cores // 4)), max(1, min(GPU_MEASUREMENTS, cores - 1))


def estimate_line(request: StudyRequest, runs: list[Job], tasks: list[Job], seconds: float) -> str:
    """What is to be done, and about how long it takes here."""
    what = f"{len(runs)} pre-training runs and {len(tasks)} measurements to do"
    return f"{request.recipe.name}, scale {request.scale_name}: {what}, {about_minutes(seconds)}"
