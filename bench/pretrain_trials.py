"""Short pre-training trials, one after another, each in a fresh process: what one change of a recipe does.

    python -m bench.pretrain_trials trials.toml --json trials.json --minutes 9

trials.toml names a recipe, how long a trial is (minutes or steps), changes for all, and a table for each trial:

    recipe = "recipes/base.toml"
    minutes = 2.0
    set = ["data.store=build/store-en"]
    [trials.zero]
    set = ["model.start=zero", "optimizer.matrix_learning_rate=0.01"]

--minutes is for this call: a trial that does not fit is left for the next call of the same command, one that is cut
off goes on there, and what is done is not done again. --json holds the results; --out the runs, with their models.
--set KEY=VALUE and --each MINUTES change every trial, --only NAME chooses. With --look DATA each model is also asked what
its loss does not tell (bench.quick_look).
"""

import argparse
import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.quick_look import COLUMNS, look_at
from bertkit.errors import BertkitError
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.suite_parts import read_json, write_json
from bertkit.training.journal import read_journal
from bertkit.training.recipe import Recipe, read_recipe
from bertkit.training.toml_text import read_toml, to_dataclass

PLATEAU = 5.9  # the MLM loss of guessing by frequency
ROOM = 40.0  # seconds that a trial may take beyond its own minutes: starting, and writing its model
LOOK_ROOM = 40.0  # and for a look at it
ASKED, LOOK = "asked.toml", "look.json"  # the trial's recipe, and what the model was found to be worth, in its folder
DONE, CUT_OFF = "done", "cut off; the next call goes on with it"
PATIENCE = 60.0  # seconds for a checkpoint when the time of this call is over


@dataclass(frozen=True)
class Trial:
    """What one trial changes; its own length goes over the list's."""

    set: tuple[str, ...] = ()
    minutes: float | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Trials:
    """A list of trials on one recipe."""

    recipe: str
    minutes: float | None = None
    steps: int | None = None
    set: tuple[str, ...] = ()
    trials: dict[str, Any] = field(default_factory=dict)  # name: a Trial
    last: tuple[str, ...] = ()  # changes that go over a trial's own

    def all(self) -> dict[str, Trial]:
        """By name, in the file's order, each with its length and all of its changes."""
        found = {}
        for name, plain in self.trials.items():
            one = to_dataclass(Trial, plain, f"trials.{name}.")
            if one.minutes is None and one.steps is None:
                one = replace(one, minutes=self.minutes, steps=self.steps)
            if (one.minutes is None) == (one.steps is None):
                raise BertkitError(f"trial {name} needs either `minutes` or `steps`; give one, there or for all")
            found[name] = replace(one, set=(*self.set, *one.set, *self.last))
        return found

    def changed(self, changes: Sequence[str], each: float | None, only: Sequence[str]) -> "Trials":
        """As the command line wants it: more changes, another length of each, some trials alone."""
        if strange := [name for name in only if name not in self.trials]:
            raise BertkitError(f"no trial {strange[0]}; choose from {', '.join(self.trials)}")
        wanted = {name: trial for name, trial in self.trials.items() if not only or name in only}
        if each is not None:
            plain = {name: {k: v for k, v in trial.items() if k != "steps"} for name, trial in wanted.items()}
            wanted = {name: {**trial, "minutes": each} for name, trial in plain.items()}
        return replace(self, trials=wanted, last=(*self.last, *changes))


def trial_recipe(trials: Trials, trial: Trial) -> Recipe:
    """The recipe with the trial's changes and length; nothing is saved on the way unless it is cut off."""
    read = read_recipe(Path(trials.recipe), trial.set, minutes=trial.minutes or 1.0)
    read = replace(read, minutes=trial.minutes, steps=trial.steps, tensorboard=False)
    return replace(
        read,
        evaluation=replace(read.evaluation, every_steps=0),
        checkpoints=replace(read.checkpoints, every_steps=0, keep=1),
    )


def run_here(out: Path, data: Path | None) -> None:
    """The trial that this folder was made for, in this process, and a look at its model."""
    from bertkit.training.live import LiveLine
    from bertkit.training.run import run_pretraining

    recipe = read_recipe(out / ASKED)
    with LiveLine() as live:
        done = run_pretraining(recipe, out, resume=True, observer=live)
    if data and not done.stopped_by:
        store = Path(recipe.data.held_out) if recipe.data.held_out else None
        write_json(out / LOOK, look_at(out / "model", DataFolder.open(data), store))


def run_fresh(out: Path, seconds: float, data: Path | None) -> str:
    """One trial in a process of its own, until the time is over: done, cut off, or why it failed."""
    command = [
        sys.executable,
        "-m",
        "bench.pretrain_trials",
        "--one",
        str(out),
        *(["--look", str(data)] if data else []),
    ]
    log = out / "log.txt"
    with log.open("w", encoding="utf-8") as errors:
        child = subprocess.Popen(command, stderr=errors)
        try:
            child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:  # also where this process is told to end
            is_cut = end(child)
    if child.returncode == 0:
        return CUT_OFF if is_cut and not (out / "model").is_dir() else DONE
    lines = log.read_text(encoding="utf-8").strip().splitlines()
    return lines[-1] if lines else f"it ended with code {child.returncode}"


def end(child: "subprocess.Popen[bytes]") -> bool:
    """Let a run write its checkpoint and stop, if it still runs."""
    if child.poll() is not None:
        return False
    child.terminate()
    try:
        child.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    return True


def summarise(out: Path) -> dict[str, Any]:
    """The figures of a run from its journal; a failed run has those up to its end."""
    journal = read_journal(out)
    steps = [line for line in journal if line["kind"] == "step"]
    measured = [line for line in journal if line["kind"] == "evaluation" and line["step"] > 0]
    if not steps:
        return {}
    tokens = 0
    left: dict[str, Any] = {"plateau_step": None, "plateau_tokens": None}
    for line in steps:
        tokens += line["tokens"]
        if left["plateau_step"] is None and line["mlm_loss"] < PLATEAU:
            left = {"plateau_step": line["step"], "plateau_tokens": tokens}
    norms = [line["grad_norm"] for line in steps]
    held_out = {name: measured[-1][name] for name in ("mlm_loss", "mlm_accuracy", "nsp_accuracy")} if measured else {}
    return {
        "steps": steps[-1]["step"],
        "tokens": tokens,
        "tokens_per_second": median(line["tokens_per_second"] for line in steps),
        "train_loss": steps[-1]["mlm_loss"],
        "grad_norm_min": min(norms),
        "grad_norm_max": max(norms),
        "flops": sum(line["flops_per_second"] * line["seconds"] for line in steps),
        **left,
        **held_out,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The results as markdown, the best held-out loss first."""
    names = ("trial", "held-out MLM loss", "MLM accuracy", "NSP accuracy", *(name for name, _ in COLUMNS.values()), "steps", "M tokens",
             "M tokens/s", "gradient norm", f"below {PLATEAU} at step (M tokens)", "changes")  # fmt: skip
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in sorted(rows, key=lambda row: row.get("mlm_loss", math.inf)):
        lines.append("| " + " | ".join(_cells(row)) + " |")
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> list[str]:
    def shown(name: str, form: str, scale: float = 1.0) -> str:
        return "-" if row.get(name) is None else format(row[name] * scale, form)

    failed = f" ({row['error']})" if row.get("error") else ""
    return [
        row["trial"] + failed,
        shown("mlm_loss", ".3f"),
        shown("mlm_accuracy", ".1%"),
        shown("nsp_accuracy", ".1%"),
        *(shown(name, form) for name, (_, form) in COLUMNS.items()),
        shown("steps", ",.0f"),
        shown("tokens", ".1f", 1e-6),
        shown("tokens_per_second", ".2f", 1e-6),
        f"{shown('grad_norm_min', '.2f')} to {shown('grad_norm_max', '.2f')}",
        f"{shown('plateau_step', ',.0f')} ({shown('plateau_tokens', '.1f', 1e-6)})",
        " ".join(f"`{change}`" for change in row["own"]),
    ]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What earlier calls left."""
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return rows


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Never half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".writing-{path.name}")
    fresh.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    fresh.replace(path)


def run_all(
    trials: Trials, out: Path, results: Path, minutes: float, *, keep_models: bool, data: Path | None = None
) -> list[dict[str, Any]]:
    """Every trial that is not done and fits into the time; all results so far come back."""
    recipes = {name: trial_recipe(trials, trial) for name, trial in trials.all().items()}  # all are checked at once
    deadline, begun = time.monotonic() + 60.0 * minutes, False
    rows = read_rows(results)
    for name, recipe in recipes.items():
        if any(row["trial"] == name and row["recipe"] == recipe.to_toml() for row in rows):
            continue
        left = deadline - time.monotonic()
        room = ROOM + (LOOK_ROOM if data else 0.0)
        if left <= 0 or (begun and left < 60.0 * (recipe.minutes or 0.0) + room):
            print(f"{name}: left for the next call", flush=True)
            continue
        begun, folder = True, prepare_folder(out / name, recipe)
        ended = run_fresh(folder, left, data)
        print(f"{name}: {ended}", flush=True)
        if ended == CUT_OFF:
            break
        own = list(to_dataclass(Trial, trials.trials[name]).set)
        found = read_json(folder / LOOK) if (folder / LOOK).is_file() else {}
        row = {"trial": name, "own": own, "error": None if ended == DONE else ended, **summarise(folder), **found}
        rows = [other for other in rows if other["trial"] != name] + [{**row, "recipe": recipe.to_toml()}]
        write_rows(results, rows)
        for part in ("checkpoints",) if keep_models else ("checkpoints", "model"):
            shutil.rmtree(folder / part, ignore_errors=True)
        print(table([row]).splitlines()[-1], flush=True)
    return rows


def prepare_folder(folder: Path, recipe: Recipe) -> Path:
    """The folder of a trial, emptied if it holds another one of that name."""
    asked = folder / ASKED
    if folder.is_dir() and not (asked.is_file() and asked.read_text(encoding="utf-8") == recipe.to_toml()):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    asked.write_text(recipe.to_toml(), encoding="utf-8")
    return folder


def main() -> None:
    """Run what is not done, then print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", type=Path, nargs="?")
    parser.add_argument("--minutes", type=float, default=9.0, help="for this call, all trials together")
    parser.add_argument(
        "--set", dest="changes", action="append", default=[], metavar="KEY=VALUE", help="in every trial"
    )
    parser.add_argument("--each", type=float, metavar="MINUTES", help="of every trial, in place of the file's")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this trial; may be given often")
    parser.add_argument("--json", type=Path, default=Path("build/trials.json"))
    parser.add_argument("--out", type=Path, default=Path("build/trials"))
    parser.add_argument("--keep-models", action="store_true")
    parser.add_argument("--look", type=Path, metavar="DATA", help="the folder with tasks/, to look at each model")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)  # a trial's folder: it runs in this process
    given = parser.parse_args()
    try:
        if given.one:
            run_here(given.one, given.look)
            return
        if given.trials is None:
            parser.error("name a file of trials")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the run that goes on is told too
        trials = to_dataclass(Trials, read_toml(given.trials)).changed(given.changes, given.each, given.only)
        where = given.out, given.json, given.minutes
        print(table(run_all(trials, *where, keep_models=given.keep_models, data=given.look)))
    except BertkitError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
