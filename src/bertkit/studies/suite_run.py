"""One fine-tuning run of the suite: a task and a seed in, its scores at the last step out, by the product's own run."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.suite_config import FinetunedTask
from bertkit.tasks.registry import read_examples, task_name
from bertkit.training.finetuning.data import Prepared, prepare
from bertkit.training.finetuning.run import FinetuneRun
from bertkit.training.finetuning.start import Base, open_base
from bertkit.training.precision import Precision
from bertkit.training.stepping import Progress
from bertkit.training.watch import DivergedError
from bertkit.training.world import choose_device

MOST_NOTE = 300  # characters


@dataclass(frozen=True)
class TaskSource:
    """A task's examples for one model."""

    model: str
    lowercase: bool | None
    data: DataFolder
    task: FinetunedTask
    limit: int | None = None

    def prepare(self) -> Prepared:
        """Read and encoded; what is worth saying is among its notes."""
        base = open_base(self.model, lowercase=self.lowercase)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train, notes = self._read(self.task.train)
            test, more = self._read((self.task.test,))
            found = self._prepare(base, train, test)
        said = (str(one.message) for one in caught)
        lines = dict.fromkeys(line[:MOST_NOTE] for line in (*notes, *more, *found.notes, *said))
        return replace(found, notes=tuple(lines))

    def _prepare(self, base: Base, train: list[Any], test: list[Any]) -> Prepared:
        try:
            return prepare(self.task.task, base, train, test, {}, self.task.config(0, base.encoder.max_positions))
        except BertkitError as error:
            if self.limit is None:
                raise
            line = f"{self.task.name}: {error}, or raise --limit: {self.limit} examples may be too few"
            raise BertkitError(line) from None

    def _read(self, names: tuple[str, ...]) -> tuple[list[Any], list[str]]:
        options = {**self.task.columns, **({"problem": "regression"} if self.task.task == "regression" else {})}
        examples, notes = [], []
        for name in names:
            file = self.data.task_file(name)
            read = read_examples(task_name(self.task.task), file, **options)
            examples += read.examples[: self.limit]
            notes += [line.replace(str(file), name) for line in read.lines]
        return examples, notes


_latest: list[tuple[TaskSource, Prepared]] = []  # the next seed of this process needs the same examples


def prepared(source: TaskSource) -> Prepared:
    """The examples of this source, kept until another's are asked for."""
    if not _latest or _latest[0][0] != source:
        _latest.clear()
        _latest.append((source, source.prepare()))
    return _latest[0][1]


class ShareWatcher:
    """Tells how much of a run is done."""

    def __init__(self, progress: Callable[[float], None]) -> None:
        self._progress = progress

    def on_step(self, values: dict[str, Any], progress: Progress) -> None:
        """Steps were taken."""
        self._progress(0.99 * progress.step / max(1, progress.num_steps or 1))

    def on_evaluation(self, values: dict[str, Any]) -> None:
        """Nothing to add."""

    def on_note(self, line: str) -> None:
        """Nothing to add."""


def finetune_once(
    source: TaskSource,
    seed: int,
    dropout: float,
    device: str,
    progress: Callable[[float], None],
    precision: Precision = "auto",
) -> dict[str, Any]:
    """One run; a loss that is no number is a result too, and counts as no score."""
    task, given = source.task, prepared(source)
    config = task.config(seed, given.base.encoder.max_positions, device, precision=precision, dropout=dropout)
    run = FinetuneRun(given.base, given.data, config, choose_device(device), None, ShareWatcher(progress))
    plain: dict[str, Any] = {
        "task": task.name,
        "seed": seed,
        "metric": task.metric,
        "notes": list(given.notes),
        "precision": str(run.dtype or torch.float32).removeprefix("torch."),
    }
    try:
        summary = run.run()
    except DivergedError as error:
        return {**plain, "scores": {}, "score": None, "collapsed": str(error)}
    return {
        **plain,
        "scores": summary.scores,
        "score": summary.scores.get(task.metric),
        "collapsed": summary.collapsed,
        "steps": summary.step,
        "seconds": summary.seconds,
        "examples_per_second": summary.examples_per_second,
        "train_loss": summary.train_loss,
        "num_train": given.data.num_train,
        "num_test": len(given.dev),
    }
