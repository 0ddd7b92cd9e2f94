"""Does bertkit fine-tune as well as transformers? The same weights, examples and settings, five seeds of each.

    python -m bench.finetune_parity --pack build/parity-data        # data and half-precision weights, to carry elsewhere
    python -m bench.finetune_parity --data build/parity-data --json results.json --minutes 9
    python -m bench.finetune_parity --data build/parity-data --json results.json --speed

Finished runs are never repeated: those of --json and of DATA/results.json. The table is written beside the JSON as .md.
Both sides read one weight file, AdamW with epsilon 1e-8, no restarts, scores of the last step.
"""

import argparse
import json
import math
import os
import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from bench.data import MINILM, ROOT
from bench.finetune_parity_runs import EPOCHS, RATE, SIDES, Setting, parity_task
from bench.finetune_speed import cache_of, measure_speed, speed_table
from bench.versions import versions
from bertkit.inference.loading import convert
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.jobs import Job, Watch, run_jobs
from bertkit.studies.suite_parts import write_json
from bertkit.studies.suite_run import TaskSource

ARCHIVES = ("glue", "conll2003", "squad")
MODEL, RESULTS = "model", "results.json"
COMMAND = "python -m bench.finetune_parity --data build/parity-data --json results.json"


def pack(folder: Path) -> None:
    """Everything that the comparison needs, in one folder of about 50 MB."""
    convert(MINILM, folder / MODEL, dtype="float16")
    (folder / "tasks").mkdir(exist_ok=True)
    data = Path(os.environ.get("BERTKIT_DATA", ROOT.parent / "shared" / "data"))
    for name in ARCHIVES:
        shutil.copyfile(data / "tasks" / f"{name}.tar.xz", folder / "tasks" / f"{name}.tar.xz")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")


@dataclass(frozen=True)
class Comparison:
    """One task: both sides' scores by seed, times 100."""

    task: str
    metric: str
    majority: float
    scores: dict[str, list[float]]

    @property
    def difference(self) -> float:
        """Of the means, bertkit's minus transformers'."""
        return fmean(self.scores[SIDES[0]]) - fmean(self.scores[SIDES[1]])

    @property
    def standard_error(self) -> float:
        """Of the difference, from both sides' spread."""
        return math.sqrt(sum(stdev(found) ** 2 / len(found) for found in self.scores.values()))

    @property
    def agrees(self) -> bool:
        """Whether the difference is within twice its standard error."""
        return abs(self.difference) <= 2 * self.standard_error

    @property
    def is_learned(self) -> bool:
        """Whether every run is above the most frequent class."""
        return min(min(found) for found in self.scores.values()) > self.majority


def compare(runs: Sequence[dict[str, Any]]) -> list[Comparison]:
    """Every task with at least two seeds of both sides."""
    found = []
    for task in EPOCHS:
        own = [run for run in runs if run["task"] == task]
        seeds = set.intersection(*({run["seed"] for run in own if run["side"] == side} for side in SIDES))
        if len(seeds) > 1:
            kept = sorted((run for run in own if run["seed"] in seeds), key=lambda run: run["seed"])
            scores = {side: [100 * run["score"] for run in kept if run["side"] == side] for side in SIDES}
            found.append(Comparison(task, kept[0]["metric"], 100 * kept[0]["majority"], scores))
    return found


def parity_table(runs: Sequence[dict[str, Any]]) -> str:
    """For docs: means, their difference beside twice its standard error, and every run."""
    head = ["task", "score", "bertkit", "transformers", "difference", "twice its standard error", "most frequent class"]
    lines = [[*head, "bertkit's runs", "transformers' runs"], ["---"] * 9]
    for one in compare(runs):
        means = [f"{fmean(one.scores[side]):.2f}" for side in SIDES]
        verdict = "" if one.agrees else " (differs)"
        error = f"{2 * one.standard_error:.2f}{verdict}"
        listed = [", ".join(f"{score:.1f}" for score in one.scores[side]) for side in SIDES]
        most = f"{one.majority:.1f}" + ("" if one.is_learned else " (not above)")
        lines.append([one.task, one.metric, *means, f"{one.difference:+.2f}", error, most, *listed])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


class Keeper(Watch):
    """Writes every run as it comes."""

    def __init__(self, results: dict[str, Any], path: Path, total: int) -> None:
        self.results, self.path, self.total, self.started = results, path, total, time.monotonic()

    def on_result(self, job: Job, result: Any) -> None:
        """One more run."""
        self.results["runs"].append(result)
        store(self.results, self.path)
        minutes = (time.monotonic() - self.started) / 60
        print(
            f"{len(self.results['runs'])}/{self.total} {job.name}: {result['score']:.4f} ({minutes:.1f} min)",
            flush=True,
        )


def store(results: dict[str, Any], path: Path) -> None:
    """The JSON, and the tables beside it."""
    write_json(path, results)
    tables = [f"MiniLM, rate {RATE:g}, batch 32: `{COMMAND}`", parity_table(results["runs"])]
    if results.get("speed"):
        tables += ["Examples a second:", speed_table(results["speed"])]
    path.with_suffix(".md").write_text("\n\n".join(tables) + "\n", encoding="utf-8")


def read_results(paths: Sequence[Path]) -> dict[str, Any]:
    """Runs of earlier calls, each once."""
    results: dict[str, Any] = {"runs": [], "speed": []}
    for path in paths:
        earlier = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"runs": []}
        known = {key_of(run) for run in results["runs"]}
        results["runs"] += [run for run in earlier["runs"] if key_of(run) not in known]
        results["speed"] = results["speed"] or earlier.get("speed", [])
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU"
    return {**results, "versions": versions("transformers"), "device": gpu}


def key_of(run: dict[str, Any]) -> tuple[Any, ...]:
    """What makes a run the same run."""
    return run["task"], run["side"], run["seed"]


def make_jobs(arguments: argparse.Namespace, done: Sequence[dict[str, Any]]) -> list[Job]:
    """The runs that are not there yet, sides and tasks mixed by seed."""
    data = DataFolder.open(arguments.data, cache_of(arguments.data))
    model = str(arguments.model or arguments.data / MODEL)
    known = {key_of(run) for run in done}
    jobs = []
    for seed in range(arguments.seeds):
        for name in arguments.tasks:
            setting = Setting(TaskSource(model, None, data, parity_task(name), arguments.limit), arguments.device)
            for side in SIDES:
                if (name, side, seed) not in known:
                    weight = setting.source.task.epochs * data.task_file(setting.source.task.train[0]).stat().st_size
                    given = {"setting": setting, "side": side, "seed": seed}
                    jobs.append(Job(f"{name} {side} seed {seed}", "bench.finetune_parity_runs:run_one", given, weight))
    return jobs


def main() -> None:
    """Pack, compare, or measure speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, help="make this folder and end")
    parser.add_argument("--data", type=Path, default=Path("build/parity-data"))
    parser.add_argument("--json", type=Path, default=Path("build/parity/results.json"))
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop then; the same command goes on")
    parser.add_argument("--tasks", nargs="+", default=list(EPOCHS), choices=list(EPOCHS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0, help="processes that share the device; 0: 6 on a GPU, else 1")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=int, help="examples of each file, to try it out")
    parser.add_argument("--model", type=Path, help="another checkpoint")
    parser.add_argument("--speed", action="store_true", help="measure examples a second instead")
    parser.add_argument("--size", default="base", help="of the model whose speed is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    if arguments.pack:
        pack(arguments.pack)
        return
    deadline = time.monotonic() + 60 * arguments.minutes
    results = read_results([arguments.json, arguments.data / RESULTS])
    if arguments.speed:
        results["speed"] = measure_speed(arguments)
    else:
        jobs = make_jobs(arguments, results["runs"])
        workers = arguments.workers or (6 if torch.cuda.is_available() and arguments.device != "cpu" else 1)
        keeper = Keeper(results, arguments.json, len(results["runs"]) + len(jobs))
        if not run_jobs(jobs, workers, keeper, lambda: time.monotonic() > deadline):
            print(f"time is up: {keeper.total - len(results['runs'])} runs are left; the same command goes on")
    store(results, arguments.json)
    print(arguments.json.with_suffix(".md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
