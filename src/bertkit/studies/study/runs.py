"""Pre-training runs of studies: planned, named by what they compute, trained as jobs, and shared between studies.

In: a recipe. Out: runs/NAME with weights at the shares LOOKS of the run, and parts/NAME/run.json with its curves. Two
studies that ask for the same run, such as the plain MLM baseline, get the same one. A killed run goes on.
"""

import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bertkit.corpus.store import read_manifest
from bertkit.studies.jobs import Job, StoppedError
from bertkit.studies.study.config import LOOKS, ArmRecipe, pretraining_recipe
from bertkit.studies.study.request import StudyRequest, Text
from bertkit.studies.suite_parts import digest_of, read_json, write_json
from bertkit.training.journal import read_journal
from bertkit.training.recipe import FREE_TO_CHANGE, Recipe, flatten
from bertkit.training.run import RunResult, run_pretraining
from bertkit.training.stepping import Progress
from bertkit.training.toml_text import to_plain
from bertkit.training.world import choose_device

RUN = "run.json"
TRAINING = "training"  # a kind of job: only so many share a GPU
MOST_POINTS = 64  # of a curve of training losses
CURVE = ("step", "loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "tokens")
NOT_KEPT = ("optimizer.safetensors", "state.json")  # of weights on the way: nobody goes on from there


@dataclass(frozen=True)
class PlannedRun:
    """One arm with one seed."""

    arm: str
    seed: int
    recipe: Recipe
    name: str  # the same for the same computation, whichever study asks
    out: Path

    @property
    def folder(self) -> Path:
        """Weights and journal."""
        return self.out / "runs" / self.name

    @property
    def parts(self) -> Path:
        """Results."""
        return self.out / "parts" / self.name

    @property
    def steps(self) -> int:
        """All of them."""
        assert self.recipe.steps is not None  # studies give steps, so that arms are equal in them
        return self.recipe.steps

    def weights(self, look: float = 1.0) -> Path:
        """The checkpoint at a share of the run."""
        return self.folder / "model" if look == 1.0 else self.folder / "looks" / f"{round(self.steps * look)}"

    @property
    def is_measured(self) -> bool:
        """Whether its curves are stored; the weights may be gone."""
        return (self.parts / RUN).is_file()

    @property
    def has_weights(self) -> bool:
        """Whether tasks can be measured with it."""
        return self.is_measured and all((self.weights(look) / "config.json").is_file() for look in LOOKS)

    def result(self) -> dict[str, Any]:
        """Its stored curves."""
        found: dict[str, Any] = read_json(self.parts / RUN)
        return found

    @property
    def said(self) -> str:
        """For people."""
        return f"pre-train {self.arm}, seed {self.seed}"

    def job(self, weight: float) -> Job:
        """Train it."""
        return Job(self.said, "bertkit.studies.study.runs:train", {"run": self}, weight, kind=TRAINING)


def plan_runs(request: StudyRequest, text: Text) -> list[PlannedRun]:
    """Every arm of the scale with every seed."""
    arms = request.recipe.arms_at(request.scale_name)
    return [plan_run(request, text, arm, seed) for arm in arms for seed in range(request.scale.seeds)]


def plan_run(request: StudyRequest, text: Text, arm: ArmRecipe, seed: int) -> PlannedRun:
    """One of them."""
    device: Literal["cpu", "cuda"] = "cuda" if choose_device(request.device).type == "cuda" else "cpu"
    recipe = replace(pretraining_recipe(request.scale, arm, seed, text.__dict__), device=device)
    plain = {k: v for k, v in flatten(to_plain(recipe)).items() if not k.startswith(FREE_TO_CHANGE)}
    plain["evaluation.num_batches"] = recipe.evaluation.num_batches
    plain |= {"device": device, "text": [store_identity(folder) for folder in (text.store, text.held_out)]}
    name = f"{recipe.model.size}-{recipe.objective}-{recipe.steps}-seed{seed}-{digest_of(plain)}"
    return PlannedRun(arm.name, seed, recipe, name, request.out)


def store_identity(folder: str) -> list[Any]:
    """What a store holds, wherever it lies."""
    manifest = read_manifest(Path(folder))
    return [manifest.tokenizer_fingerprint, [shard.tokens.sha256 for shard in manifest.shards]]


class ShareObserver:
    """Tells how much of a run is done; where it is told to stop, the run hears a signal, saves itself, and ends."""

    def __init__(self, progress: Callable[[float], None]) -> None:
        self._progress = progress
        self.is_stopped = False

    def on_step(self, values: dict[str, Any], progress: Progress) -> None:
        """Steps were taken."""
        try:
            self._progress(0.98 * progress.step / max(1, progress.num_steps or 1))
        except StoppedError:
            if not self.is_stopped:
                self.is_stopped = True
                signal.raise_signal(signal.SIGTERM)

    def on_evaluation(self, values: dict[str, Any]) -> None:
        """Nothing to add."""


def train(run: PlannedRun, progress: Callable[[float], None]) -> dict[str, Any]:
    """Train a run, or go on with it; its weights on the way are kept, and its curves stored."""
    observer = ShareObserver(progress)
    result = run_pretraining(run.recipe, run.folder, resume=True, observer=observer)
    if result.stopped_by:
        if not observer.is_stopped:
            signal.raise_signal(signal.SIGTERM)  # the run heard it first; it is meant for the study
        progress(0.98)  # leaves
    keep_looks(run)
    found = describe(run, result)
    write_json(run.parts / RUN, found)
    shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)
    return found


def keep_looks(run: PlannedRun) -> None:
    """Weights on the way leave the folder of checkpoints, without what only a training run needs."""
    for look in LOOKS[:-1]:
        target = run.weights(look)
        source = run.folder / "checkpoints" / f"step-{round(run.steps * look):08d}"
        if not target.exists() and source.is_dir():
            for name in NOT_KEPT:
                (source / name).unlink(missing_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)


def describe(run: PlannedRun, result: RunResult) -> dict[str, Any]:
    """The curves and the last figures of a run."""
    journal = read_journal(run.folder)
    steps = [{name: line[name] for name in CURVE} for line in journal if line["kind"] == "step"]
    looks = [
        {name: value for name, value in line.items() if name != "kind"}
        for line in journal
        if line["kind"] == "evaluation"
    ]
    return {
        **{name: value for name, value in looks[-1].items() if run.recipe.data.next_sentence or "nsp" not in name},
        "tokens": result.tokens,
        "seconds": result.seconds,
        "evaluations": looks,
        "training": steps[:: max(1, -(-len(steps) // MOST_POINTS))],
    }
