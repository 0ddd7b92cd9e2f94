"""What every result says in the same way: the recipe's words, the machine, the runs, and what is not done yet."""

import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

import bertkit
from bertkit.studies.study.noise import TEST_NAME
from bertkit.studies.study.request import StudyRequest
from bertkit.studies.study.result import Arm, Curve, Draws, Measure, Score, StudyResult, TextTable
from bertkit.studies.study.runs import PlannedRun
from bertkit.training.world import choose_device

MOST_NAMED = 6  # parts that a note lists


def result_of(
    request: StudyRequest,
    *,
    arms: Sequence[Arm],
    baseline: str,
    measures: Sequence[Measure],
    scores: Sequence[Score],
    about: dict[str, Any],
    notes: Sequence[str],
    curves: Sequence[Curve] = (),
    tables: Sequence[TextTable] = (),
    agreement: tuple[str, ...] = (),
    draws: Sequence[Draws] = (),
    test: str = TEST_NAME,
) -> StudyResult:
    """What was found, under what the recipe says of it."""
    recipe = request.recipe
    return StudyResult(
        name=recipe.name,
        scale=request.scale_name,
        question=recipe.question,
        claim=recipe.claim,
        paper=recipe.paper,
        arms=tuple(arms),
        baseline=baseline,
        measures=tuple(measures),
        scores=tuple(scores),
        curves=tuple(curves),
        tables=tuple(tables),
        notes=tuple(notes),
        agreement=agreement,
        remark="" if request.models else request.scale.remark,
        command=request.command,
        about=about,
        draws=tuple(draws),
        test=test,
    )


def about_machine(request: StudyRequest, seconds: float) -> dict[str, Any]:
    """Where and with what a study was measured, and the minutes of all its parts, were they done one after another."""
    gpu = choose_device(request.device).type == "cuda"
    return {
        "device": torch.cuda.get_device_name() if gpu else f"CPU ({platform.machine()})",
        "bertkit": bertkit.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "seeds": request.scale.seeds,
        "process minutes": round(seconds / 60, 1),
    }


def about_runs(runs: Sequence[PlannedRun]) -> dict[str, Any]:
    """How many runs are trained, and how far."""
    done = [run.result() for run in runs if run.is_measured]
    return {"pre-training runs": len(done), "tokens of each run": max((found["tokens"] for found in done), default=0)}


def names_of(models: Iterable[str | Path]) -> str:
    """Finished checkpoints, each once."""
    return ", ".join(dict.fromkeys(Path(model).name for model in models))


def missing_notes(missing: Sequence[str]) -> list[str]:
    """What is not done yet, on one line."""
    if not missing:
        return []
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    return [f"Not done yet: {'; '.join(missing[:MOST_NAMED])}{more}."]
