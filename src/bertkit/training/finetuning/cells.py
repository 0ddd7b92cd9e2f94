"""Many runs of one task: seeds, the paper's grid, and collapsed runs begun anew; each finished run is never repeated.

In: a FinetuneConfig for each cell. Out: their summaries, their mean and spread, and the best cell's model. With a
folder, runs/CELL/result.json says that a cell is done, so a killed grid goes on at the cell that it was in.
"""

import gc
import json
import math
import shutil
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.training.finetuning.config import FinetuneConfig
from bertkit.training.finetuning.evaluation import FEW_STEPS
from bertkit.training.finetuning.records import RunSummary, TaskData, Watcher
from bertkit.training.finetuning.run import EARLY, FinetuneRun
from bertkit.training.finetuning.start import Base
from bertkit.training.watch import DivergedError, StopRequest

RESULT = "result.json"
SEED_STEP = 7919  # a prime, so that seeds of restarts and neighbouring seeds do not meet


@dataclass(frozen=True)
class Cell:
    """One run that counts, and those that collapsed before it."""

    name: str
    summary: RunSummary
    collapsed: tuple[tuple[int, str], ...] = ()  # seeds begun with, and why each was given up

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return {"name": self.name, "summary": asdict(self.summary), "collapsed": [list(one) for one in self.collapsed]}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> "Cell":
        """The reverse."""
        collapsed = tuple((int(seed), str(why)) for seed, why in plain["collapsed"])
        return cls(plain["name"], RunSummary(**plain["summary"]), collapsed)


@dataclass(frozen=True)
class Spread:
    """A score over several seeds of one setting."""

    setting: str
    num_runs: int
    mean: float
    deviation: float  # sample standard deviation; 0 of one run

    def line(self, metric: str) -> str:
        """For people."""
        if self.num_runs == 1:
            return f"{self.setting}: {metric} {self.mean:.4f}"
        return f"{self.setting}: {metric} {self.mean:.4f} +- {self.deviation:.4f} over {self.num_runs} seeds"


class CellRunner:
    """Runs cells one after another and keeps the best model."""

    def __init__(
        self,
        base: Base,
        data: TaskData,
        device: torch.device,
        folder: Path | None = None,
        watcher: Watcher | None = None,
        keep: Callable[[BertModel, Cell], None] | None = None,
    ) -> None:
        self.base, self.data, self.device, self.folder, self.watcher = base, data, device, folder, watcher
        self.keep = keep  # told of every new best, before its cell counts as done
        self.cells: list[Cell] = []
        self.best: Cell | None = None
        self.model: BertModel | None = None  # the best cell's, on the CPU, unless it was finished earlier
        self.stopped_by: str | None = None
        self._has_begun = False

    def run(self, configs: Iterable[FinetuneConfig], stop: StopRequest | None = None) -> list[Cell]:
        """All cells, or those before a signal."""
        asked = list(configs)
        for number, config in enumerate(asked, start=1):
            cell = self._finished(config)
            if cell is None:
                if len(asked) > 1:
                    self._say(f"run {number} of {len(asked)}: {config.cell}")
                cell = self._run_cell(config, stop)
            if cell is None:
                break
            self.cells.append(cell)
        return self.cells

    def _finished(self, config: FinetuneConfig) -> Cell | None:
        """A cell that an earlier run has done."""
        path = None if self.folder is None else self.folder / config.cell / RESULT
        if path is None or not path.is_file():
            return None
        cell = Cell.from_json(json.loads(path.read_text(encoding="utf-8")))
        if self._beats(cell):
            self.best, self.model = cell, None
        return cell

    def _run_cell(self, config: FinetuneConfig, stop: StopRequest | None) -> Cell | None:
        """One cell; a collapsed run is begun anew with another seed, a bounded number of times."""
        tried: list[tuple[RunSummary, BertModel]] = []
        while True:
            again = len(tried)
            seeded = replace(config, seed=config.seed + again * SEED_STEP)
            summary, model = self._attempt(seeded, config.cell, again, stop)
            if summary.stopped_by and not summary.stopped_by.startswith(EARLY):
                self.stopped_by = summary.stopped_by
                return None
            tried.append((summary, model))
            has_learned_too_little = summary.num_steps < FEW_STEPS and not has_diverged(summary)
            if not summary.collapsed or again >= config.restarts or has_learned_too_little:
                break
            self._say(f"collapsed with seed {seeded.seed}: {summary.collapsed}; begun anew with another seed")
        if all(has_diverged(one) for one, _ in tried):
            raise BertkitError(f"{config.cell}: {summary.collapsed}")
        if summary.collapsed:
            self._say(self._last_word(summary, len(tried)))
        # Where all collapsed, the best of them is kept, not the last.
        summary, model = max(tried, key=lambda one: self._rank(one[0]))
        given_up = [
            (int(one.config["seed"]), one.collapsed) for one, _ in tried if one is not summary and one.collapsed
        ]
        cell = Cell(config.cell, summary, tuple(given_up))
        if self._beats(cell):
            self.best, self.model = cell, model
            if self.keep:
                self.keep(model, cell)
        self._store(cell)
        return cell

    def _attempt(
        self, config: FinetuneConfig, name: str, number: int, stop: StopRequest | None
    ) -> tuple[RunSummary, BertModel]:
        folder = None if self.folder is None else self.folder / name / f"attempt-{number}"
        run = FinetuneRun(self.base, self.data, config, self.device, folder, self.watcher)
        run.says_start, self._has_begun = not self._has_begun, True
        try:
            summary = run.run(stop)
        except DivergedError as error:
            summary = replace(run.summary(), scores={}, train_loss=math.inf, collapsed=str(error))
        model = run.model
        model.zero_grad(set_to_none=True)
        # A run refers to itself, so its optimizer's state would stay on the device beside the next run's.
        del run
        gc.collect()
        return summary, model.cpu()

    def _beats(self, cell: Cell) -> bool:
        """Better by the score; a run that has not collapsed beats any that has."""
        return self.best is None or self._rank(cell.summary) > self._rank(self.best.summary)

    def _rank(self, summary: RunSummary) -> tuple[bool, float]:
        metric = str(summary.config["metric"]) or self.data.task.metric
        score = summary.scores.get(metric, -summary.train_loss)
        return summary.collapsed is None, score if math.isfinite(score) else -math.inf

    @staticmethod
    def _last_word(summary: RunSummary, num_tried: int) -> str:
        seed, why = summary.config["seed"], summary.collapsed
        if summary.num_steps < FEW_STEPS:
            return (
                f"nothing was learned in {summary.num_steps} steps (seed {seed}: {why}); train for more epochs, or with a "
                "higher rate: --set epochs=..., --set learning_rate=..."
            )
        too = " too" if num_tried > 1 else ""
        return f"seed {seed} collapsed{too}: {why}; see the report for what to try"

    def _store(self, cell: Cell) -> None:
        """The cell counts as done; its checkpoints are no longer needed."""
        if self.folder is None:
            return
        path = self.folder / cell.name / RESULT
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".writing-{RESULT}")
        aside.write_text(json.dumps(cell.to_json(), indent=1) + "\n", encoding="utf-8")
        aside.replace(path)
        for checkpoints in (self.folder / cell.name).glob("attempt-*/checkpoints"):
            shutil.rmtree(checkpoints, ignore_errors=True)

    def _say(self, line: str) -> None:
        if self.watcher:
            self.watcher.on_note(line)


def has_diverged(summary: RunSummary) -> bool:
    """Whether its loss was lost, so that its weights are of no use."""
    return math.isinf(summary.train_loss)


def spread_of(cells: Sequence[Cell], metric: str) -> list[Spread]:
    """Mean and deviation of each setting over its seeds, best first; collapsed runs count only where all collapsed."""
    by_setting: dict[str, list[Cell]] = {}
    for cell in cells:
        by_setting.setdefault(cell.name.rpartition("-seed")[0], []).append(cell)
    found = []
    for setting, group in by_setting.items():
        counted = [cell for cell in group if not cell.summary.collapsed] or group
        scores = [cell.summary.scores.get(metric, math.nan) for cell in counted]
        deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
        found.append(Spread(setting, len(scores), statistics.fmean(scores), deviation))
    return sorted(found, key=lambda one: -one.mean)
