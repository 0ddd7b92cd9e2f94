"""A study's open jobs on this machine: runs to train, parts to measure when their run's weights are there.

In: jobs whose weights are seconds. Out: what stopped them before their end, where something did. All results are stored
by the jobs themselves, so that whoever calls again leaves the finished ones out. A job that is refused, such as a run
whose loss diverges, takes only those with it that wait for it.
"""

from collections.abc import Sequence
from dataclasses import replace

from bertkit.cores import num_cores
from bertkit.errors import BertkitError
from bertkit.studies.jobs import Job, run_jobs
from bertkit.studies.study.estimate import about_minutes, run_seconds, total_seconds
from bertkit.studies.study.request import StudyRequest
from bertkit.studies.study.runs import TRAINING, PlannedRun
from bertkit.studies.suite_live import SuiteLine
from bertkit.training.watch import catch_signals
from bertkit.training.world import choose_device

GPU_RUNS, GPU_PARTS = 4, 8  # processes that share one GPU
LATE = "the time limit"


def train_and_measure(
    request: StudyRequest,
    runs: Sequence[PlannedRun],
    parts: Sequence[tuple[Job, PlannedRun | None]],
    vocab_size: int,
) -> str | None:
    """Train these runs, and do each part as soon as its run is there (None: it needs none); what stopped it."""
    training = {run.name: run.job(run_seconds(run, vocab_size)) for run in runs}  # the same computation: trained once
    jobs = [
        replace(job, after=training[run.name].name) if run is not None and run.name in training else job
        for job, run in parts
    ]
    return work_through(request, list(training.values()), jobs, choose_workers(request))


def work_through(
    request: StudyRequest, runs: Sequence[Job], parts: Sequence[Job], workers: tuple[int, int]
) -> str | None:
    """All jobs, by so many processes for runs and for parts, until the end, a signal, or the time that was given."""
    jobs, device, refused = [*runs, *parts], choose_device(request.device).type, list[str]()
    with catch_signals() as stop, SuiteLine(jobs, shown=request.shown) as line:
        if jobs:
            seconds = total_seconds((j.weight for j in runs), (j.weight for j in parts), device, workers)
            line.print(estimate_line(request, runs, parts, seconds))

        def should_stop() -> bool:
            return stop.name is not None or request.is_late

        def on_refused(job: Job, why: str) -> None:
            refused.append(f"{job.name}: {why}")
            line.print(refused[-1])

        # A GPU may be lent, and weights go with it: what has been trained is measured first. Else cores are never idle.
        lent = device != "cpu"
        most = {TRAINING: workers[0]}
        is_done = run_jobs(jobs, max(workers), line, should_stop, most, finish_first=lent, on_refused=on_refused)
        if refused and not line.num_done and is_done:  # nothing can be done: whoever called made a mistake
            raise BertkitError(refused[0])
        return stop.name or (None if is_done else LATE) or (refused[0] if refused else None)


def choose_workers(request: StudyRequest) -> tuple[int, int]:
    """Processes for runs and for parts: a core each on CPUs, several that share a GPU."""
    if request.workers:
        return request.workers, request.workers
    cores = num_cores()
    if choose_device(request.device).type == "cpu":
        return cores, cores
    return max(1, min(GPU_RUNS, cores // 4)), max(1, min(GPU_PARTS, cores - 1))


def estimate_line(request: StudyRequest, runs: Sequence[Job], parts: Sequence[Job], seconds: float) -> str:
    """What is to be done, and about how long it takes here."""
    what = f"{len(runs)} pre-training runs and {len(parts)} measurements to do"
    return f"{request.recipe.name}, scale {request.scale_name}: {what}, {about_minutes(seconds)}"
