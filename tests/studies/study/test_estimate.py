"""The estimate before a study begins: grows with the work, and keeps the set of studies within its budget."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from bertkit.model.config import preset
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.study.config import TaskUse, pretraining_recipe, read_study
from bertkit.studies.study.estimate import measurement_seconds, run_seconds, total_seconds
from bertkit.studies.study.measuring import Measurement
from bertkit.studies.study.runs import PlannedRun
from bertkit.studies.suite_config import read_suite

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
    """All studies are to fit into two leases of half an hour, and measuring takes fifteen minutes of them."""
    runs = {run.name: run for name in NAMES for run in planned(name, "gpu")}
    seconds = [run_seconds(run, 30000) for run in runs.values()]
    assert total_seconds(seconds, [], "cuda", (4, 8)) < 27 * 60


def test_speeds_on_a_gpu_are_those_that_were_seen() -> None:
    """mini 8.3 and small 4.3 million tokens a second by one run alone; building batches limits mini here."""
    by_arm = {run.arm: run_seconds(run, 30000) - 15.0 for run in planned("size", "gpu")}
    tokens = 2000 * 65536
    assert tokens / by_arm["small"] == pytest.approx(4.3e6, rel=0.05)
    assert tokens / by_arm["mini"] == pytest.approx(5e6, rel=0.01)


def tagging(run: PlannedRun, use: TaskUse, folder: Path) -> Measurement:
    file = folder / "tasks" / "conll2003" / "eng.train"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b" " * 3_281_528)
    return Measurement(run, 1.0, use, use.of(read_suite()), DataFolder(folder, folder), 0.1, "cpu")


def test_features_of_a_finished_model_take_about_ten_minutes_on_two_cores(tmp_path: Path) -> None:
    """The estimate was 70 minutes while it counted the frozen encoder as trained; small-en took 22 of CPU time."""
    run, (finetune, features) = planned("size", "minutes")[0], read_study("features").at("minutes").tasks
    seconds = [measurement_seconds(tagging(run, use, tmp_path), preset("small")) for use in (finetune, features)]
    assert 90 < seconds[0] < 200
    assert 30 < seconds[1] < 90
    assert 3 * (seconds[0] + 6 * seconds[1]) / 2 < 15 * 60


def test_fine_tuning_on_a_gpu_takes_what_it_took(tmp_path: Path) -> None:
    """CoNLL-2003: 14,041 sentences in 3.3 MB. Four epochs took mini 15 to 25 s, and small 25 to 28."""
    run = next(run for run in planned("size", "gpu") if run.arm == "mini")
    one = tagging(run, TaskUse("CoNLL-2003"), tmp_path)
    seconds = {size: measurement_seconds(one, preset(size)) - 5.0 for size in ("mini", "small")}
    assert 15 < seconds["mini"] < 25
    assert 25 < seconds["small"] < 33
