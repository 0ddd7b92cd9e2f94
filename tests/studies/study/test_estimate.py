"""The estimate before a study begins: grows with the work, and keeps the set of studies within its budget."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from bertkit.studies.study.config import pretraining_recipe, read_study
from bertkit.studies.study.estimate import run_seconds, total_seconds
from bertkit.studies.study.runs import PlannedRun

DATA = {"store": "store", "tokenizer": "vocab", "held_out": "held-out"}
NAMES = ("direction", "masking", "size", "steps", "nsp")


def planned(name: str, scale: str) -> list[PlannedRun]:
    study = read_study(name)
    device: Literal["cpu", "cuda"] = "cuda" if scale == "gpu" else "cpu"
    runs = []
    for arm in study.arms_at(scale):
        for seed in range(study.at(scale).seeds):
            recipe = replace(pretraining_recipe(study.at(scale), arm, seed, DATA), device=device)
            runs.append(PlannedRun(arm.name, seed, recipe, recipe.to_toml(), Path("out")))
    return runs


def test_left_to_right_takes_longer_and_so_do_larger_models() -> None:
    seconds = {run.arm: run_seconds(run, 4000) for run in planned("direction", "minutes")}
    assert 1.5 < seconds["ltr"] / seconds["mlm"] < 4
    sizes = [run_seconds(run, 30000) for run in planned("size", "gpu") if run.seed == 0]
    assert sizes == sorted(sizes)


def test_pretraining_at_scale_minutes_leaves_time_for_the_tasks() -> None:
    for name in NAMES:
        seconds = [run_seconds(run, 4000) for run in planned(name, "minutes")]
        assert total_seconds(seconds, [], "cpu", (2, 2)) < 8.5 * 60, name


def test_pretraining_of_all_studies_fits_into_few_runs_of_a_gpu() -> None:
    runs = {run.name: run for name in NAMES for run in planned(name, "gpu")}
    seconds = [run_seconds(run, 30000) for run in runs.values()]
    assert total_seconds(seconds, [], "cuda", (4, 8)) < 40 * 60
