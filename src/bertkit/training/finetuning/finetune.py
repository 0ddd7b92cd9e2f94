"""`bertkit.finetune`: files or examples in, a trained, evaluated and explained model out, in one call.

    bertkit.finetune("classification", model="small-en", train="train.csv", dev="dev.csv").save("reviews")

The folder of a saved model is an ordinary BERT folder with task.json, a card and report.html; a run that is given
`out` keeps its journals in out/runs and may be killed and started again.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from bertkit.cores import has_bfloat16
from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.formats import load_model, save_model
from bertkit.pages.finetuning import FinetuningReport
from bertkit.tasks.registry import write_task
from bertkit.tasks.task import Task
from bertkit.text.folders import only_one
from bertkit.tokenizer import Tokenizer
from bertkit.training.finetuning.cells import Cell, CellRunner, Spread, spread_of
from bertkit.training.finetuning.config import FinetuneConfig, grid_of, make_config
from bertkit.training.finetuning.data import Prepared, Source, prepare
from bertkit.training.finetuning.records import Watcher
from bertkit.training.finetuning.report import make_report, write_pages
from bertkit.training.finetuning.start import open_base
from bertkit.training.precision import resolve_precision
from bertkit.training.recipe import NAME as RECIPE
from bertkit.training.toml_text import read_toml, to_plain, write_toml
from bertkit.training.watch import catch_signals
from bertkit.training.world import choose_device

RUNS = "runs"
HELD = "held.txt"  # beside the runs: the one whose weights lie in the folder
CONFIGS = ("config.json", "bert_config.json")  # of a model that lies in a folder


@dataclass(frozen=True)
class Finetuned:
    """A fine-tuned model and how it came to be."""

    model: BertModel
    task: Task[Any, Any]
    config: FinetuneConfig  # of the best run
    cells: Sequence[Cell]
    best: Cell
    metric: str
    prepared: Prepared  # the checkpoint that it started from, and the examples
    device: str
    precision: str
    stopped_by: str | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's."""
        return self.prepared.base.tokenizer

    @property
    def scores(self) -> dict[str, float]:
        """The best run's, on the development set."""
        return self.best.summary.scores

    @property
    def spread(self) -> list[Spread]:
        """Mean and deviation of each setting over its seeds."""
        return spread_of(self.cells, self.metric)

    @cached_property
    def report(self) -> FinetuningReport:
        """Everything about it: curves, scores beside those of simple models, mistakes; the page and card show it."""
        return make_report(self)

    def save(self, folder: str | Path) -> Path:
        """Write the model, its tokenizer, task.json, the card and report.html."""
        target = Path(folder)
        save_weights(target, self.model, self.prepared, self.task)
        write_pages(target, self.report)
        return target


@dataclass(frozen=True)
class Interrupted:
    """A signal came before the first run was done; the same call goes on."""

    stopped_by: str
    folder: Path | None


def finetune(
    task: str,
    *,
    model: str | Path,
    train: Source,
    dev: Source | None = None,
    out: str | Path | None = None,
    seeds: int = 1,
    grid: str = "",
    columns: Mapping[str, Any] | None = None,
    lowercase: bool | None = None,
    watcher: Watcher | None = None,
    **settings: Any,
) -> Finetuned:
    """Fine-tune a checkpoint for a task. Settings are FinetuneConfig's: epochs=3, learning_rate=3e-5, long="window"...

    train and dev are files or lists of examples; without dev a part of train is held out and said. `columns` are the
    reader's options, such as {"text": "review", "label": "stars"}.
    """
    found = run_finetuning(
        task, model, train, dev, out, make_config(settings), seeds, grid, columns, lowercase, watcher
    )
    if isinstance(found, Interrupted):
        raise BertkitError(f"stopped by {found.stopped_by} before the first run was done; start again to go on")
    return found


def run_finetuning(
    task: str,
    model: str | Path,
    train: Source,
    dev: Source | None,
    out: str | Path | None,
    config: FinetuneConfig,
    seeds: int = 1,
    grid: str = "",
    columns: Mapping[str, Any] | None = None,
    lowercase: bool | None = None,
    watcher: Watcher | None = None,
) -> Finetuned | Interrupted:
    """The same, with a signal as an outcome and not as an error."""
    device = choose_device(config.device)
    config.narrow_type(device)  # refused before anything is read
    prepared = prepare(task, open_base(model, lowercase=lowercase), train, dev, columns or {}, config)
    if watcher:
        for line in (*prepared.notes, *precision_notes(config, device)):
            watcher.on_note(line)
    folder = None if out is None else Path(out)
    if folder:
        prepare_folder(folder, prepared, config)

    def keep(best: BertModel, cell: Cell) -> None:
        if folder:
            save_weights(folder, best, prepared, prepared.task.tuned(cell.summary.scores))
            (folder / RUNS / HELD).write_text(cell.name, encoding="utf-8")

    runner = CellRunner(prepared.base, prepared.data, device, folder / RUNS if folder else None, watcher, keep)
    with catch_signals() as stop, only_one(folder) if folder else nullcontext():
        runner.run(grid_of(config, grid, seeds), stop)
    if runner.best is None:
        return Interrupted(runner.stopped_by or "a signal", folder)
    result = make_result(prepared, runner, config, folder)
    if folder:
        write_pages(folder, result.report)
    return result


def precision_notes(config: FinetuneConfig, device: torch.device) -> tuple[str, ...]:
    """What could be faster here; nobody gets other numbers on a CPU unasked."""
    if device.type != "cpu" or config.precision != "auto" or not has_bfloat16():
        return ()
    return ("this CPU has bfloat16: with precision=bfloat16 steps take less time, a little less exactly",)


def make_result(prepared: Prepared, runner: CellRunner, config: FinetuneConfig, folder: Path | None) -> Finetuned:
    """The best run's model; of runs that were all done before, the one in the folder."""
    best, model = runner.best, runner.model
    assert best is not None
    if model is None:
        assert folder is not None  # without a folder no cell was done before
        refuse_other_run(folder, best.name)
        model = load_model(folder)[0]
    return Finetuned(
        model=model.to(runner.device),
        task=prepared.task.tuned(best.summary.scores),
        config=FinetuneConfig(**best.summary.config),
        cells=runner.cells,
        best=best,
        metric=config.metric or prepared.task.metric,
        prepared=prepared,
        device=runner.device.type,
        precision=resolve_precision(config.precision, runner.device),
        stopped_by=runner.stopped_by,
    )


def refuse_other_run(folder: Path, best: str) -> None:
    """Of fewer runs than before, the best may be one whose weights were not kept."""
    file = folder / RUNS / HELD
    if file.is_file() and (held := file.read_text(encoding="utf-8")) != best:
        raise BertkitError(
            f"{folder} holds the model of {held}, a better run than those asked for now; ask for its seed and grid too, "
            "or give another folder"
        )


def prepare_folder(folder: Path, prepared: Prepared, config: FinetuneConfig) -> None:
    """Make the run's folder, or check that it holds this very run."""
    plain = {
        "task": prepared.task.name,
        "model": prepared.base.source,
        "examples": prepared.fingerprint,
        **to_plain(config),
    }
    path = folder / RECIPE
    if (folder / RUNS).is_dir() and path.is_file():
        before = read_toml(path)
        for key in sorted({*before, *plain}):
            if before.get(key) != plain.get(key):
                other = f"with {key} = {before.get(key)}, not {plain.get(key)}"
                raise BertkitError(
                    f"{folder} holds a run {'on other examples' if key == 'examples' else other}; give the same settings "
                    "and files to go on with it, or another folder"
                )
        return
    if any((folder / name).is_file() for name in CONFIGS):
        raise BertkitError(f"{folder} holds a model that would be overwritten; choose another folder")
    try:
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
        path.write_text(write_toml(plain), encoding="utf-8")
    except OSError as error:
        raise BertkitError(f"{folder} cannot be written: {error.strerror or error}; choose another folder") from None


def save_weights(folder: Path, model: BertModel, prepared: Prepared, task: Task[Any, Any]) -> None:
    """A folder that bertkit and the ecosystem load."""
    save_model(model, folder)
    prepared.base.tokenizer.save(folder, max_length=model.config.max_positions)
    write_task(folder, task, prepared.limit)
