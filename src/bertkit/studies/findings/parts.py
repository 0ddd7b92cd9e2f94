"""What the studies of this package share: models to look at, parts stored under a digest, and jobs done in phases.

In: a request. Out: a checkpoint for every seed, given or pre-trained by the study's own recipe; results as JSON in
parts/, so that the same call goes on after a kill. Nothing here knows what is measured.
"""

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import bertkit
from bertkit.cores import num_cores
from bertkit.corpus.store import read_manifest
from bertkit.inference.loading import open_checkpoint
from bertkit.model.config import BertConfig
from bertkit.studies.jobs import Job, run_jobs
from bertkit.studies.study.config import ArmRecipe
from bertkit.studies.study.estimate import about_minutes, run_seconds
from bertkit.studies.study.request import StudyRequest, Text
from bertkit.studies.study.runs import TRAINING, PlannedRun, plan_run
from bertkit.studies.suite_live import SuiteLine
from bertkit.tokenizer import Tokenizer
from bertkit.training.checkpoints import fingerprint
from bertkit.training.recipe import Recipe
from bertkit.training.watch import catch_signals
from bertkit.training.world import choose_device

PLAIN = ArmRecipe("bert", "BERT")
GPU_RUNS, GPU_PARTS = 4, 6  # processes that share one GPU
LATE = "the time limit"
MOST_NAMED = 6  # parts that a note lists


@dataclass(frozen=True)
class GivenModel(PlannedRun):
    """A finished checkpoint in the place of a run."""

    model: str = ""

    def weights(self, look: float = 1.0) -> Path:
        """The checkpoint itself."""
        return Path(self.model)

    @property
    def has_weights(self) -> bool:
        """Nothing has to be trained."""
        return True


def plan_models(request: StudyRequest, text: Text | None, num_given: int = 1) -> list[PlannedRun]:
    """A model for every seed: those given, taken in turn, at least `num_given`; or runs of the scale's recipe."""
    if request.models:
        numbers = range(max(num_given, len(request.models)))
        return [_given(request, request.models[seed % len(request.models)], seed) for seed in numbers]
    assert text is not None  # whoever pre-trains has text
    return [plan_run(request, text, PLAIN, seed) for seed in range(request.scale.seeds)]


def _given(request: StudyRequest, model: str, seed: int) -> GivenModel:
    stored = open_checkpoint(model, dtype=None)
    name = f"given-{Path(model).name}-{fingerprint(stored.model.named_parameters())[:10]}-seed{seed}"
    device = choose_device(request.device).type
    recipe = Recipe(steps=1, device="cuda" if device == "cuda" else "cpu")
    return GivenModel(PLAIN.name, seed, recipe, name, request.out, str(Path(model).resolve()))


def config_of(run: PlannedRun, text: Text | None) -> BertConfig:
    """The shape of a model, before it is trained."""
    if isinstance(run, GivenModel):
        return open_checkpoint(run.model, dtype=None).config
    assert text is not None
    vocab_size = Tokenizer.load(text.tokenizer).vocab_size
    return run.recipe.model.config(vocab_size, next_sentence=run.recipe.data.next_sentence)


def digest_of(*plain: Any) -> str:
    """A short name of settings: other settings, another file."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:10]


def store_identity(folder: str) -> list[Any]:
    """What a store holds, wherever it lies."""
    manifest = read_manifest(Path(folder))
    return [manifest.tokenizer_fingerprint, [shard.tokens.sha256 for shard in manifest.shards]]


def num_workers(request: StudyRequest, on_gpu: int) -> int:
    """Processes: a core each on CPUs, several that share a GPU."""
    cores = num_cores()
    if request.workers:
        return request.workers
    return cores if choose_device(request.device).type == "cpu" else max(1, min(on_gpu, cores - 1))


def work_through(request: StudyRequest, runs: Sequence[Job], parts: Sequence[Job], workers: int) -> str | None:
    """Train, and measure by so many processes; what stopped it, where something did. Weights are seconds."""
    jobs, training = [*runs, *parts], num_workers(request, GPU_RUNS) if runs else 1
    with catch_signals() as stop, SuiteLine(jobs, shown=request.shown) as line:
        if jobs:
            line.print(_estimate_line(request, [(runs, training), (parts, workers)]))

        def should_stop() -> bool:
            return stop.name is not None or request.is_late

        lent = (
            choose_device(request.device).type != "cpu"
        )  # weights may go with a GPU: measured first, as in pretraining
        is_done = run_jobs(jobs, max(training, workers), line, should_stop, {TRAINING: training}, finish_first=lent)
        return None if is_done else stop.name or LATE


def _estimate_line(request: StudyRequest, phases: Sequence[tuple[Sequence[Job], int]]) -> str:
    seconds = sum(sum(job.weight for job in phase) / max(1, min(workers, len(phase))) for phase, workers in phases)
    num = sum(len(phase) for phase, _ in phases)
    what = f"{request.recipe.name}, scale {request.scale_name}: {num} parts to do"
    return f"{what}, {about_minutes(seconds)}"


def training_jobs(runs: Sequence[PlannedRun], needed: set[str], text: Text | None) -> dict[str, Job]:
    """The runs whose weights are needed and are not there, by name."""
    left = [run for run in runs if run.name in needed and not run.has_weights]
    return {run.name: run.job(run_seconds(run, config_of(run, text).vocab_size)) for run in left}


def waits_for(training: Mapping[str, Job], run: PlannedRun | None) -> str:
    """The job that makes a run's weights; empty where they are there, or none are needed."""
    return training[run.name].name if run is not None and run.name in training else ""


def about_machine(request: StudyRequest, minutes: float) -> dict[str, Any]:
    """Where and with what a study was measured, and the minutes of all its parts together."""
    gpu = choose_device(request.device).type == "cuda"
    return {
        "device": torch.cuda.get_device_name() if gpu else f"CPU ({platform.machine()})",
        "bertkit": bertkit.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "seeds": request.scale.seeds,
        "minutes": round(minutes, 1),
    }


def scale_notes(request: StudyRequest) -> tuple[str, ...]:
    """What the scale can show; of given checkpoints it cannot speak."""
    if not request.models:
        return request.scale.notes
    names = ", ".join(Path(model).name for model in request.models)
    return (f"Measured on finished checkpoints ({names}), not on models that the study trained.",)


def missing_notes(missing: Sequence[str]) -> list[str]:
    """What is not done yet, on one line."""
    if not missing:
        return []
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    return [f"Not done yet: {'; '.join(missing[:MOST_NAMED])}{more}."]


def trained_on(runs: Sequence[PlannedRun]) -> dict[str, Any]:
    """What the models are, for `about`."""
    given = [run.model for run in runs if isinstance(run, GivenModel)]
    if given:
        return {"models": ", ".join(dict.fromkeys(Path(model).name for model in given))}
    done = [run.result() for run in runs if run.is_measured]
    return {"pre-training runs": len(done), "tokens of each run": max((found["tokens"] for found in done), default=0)}
