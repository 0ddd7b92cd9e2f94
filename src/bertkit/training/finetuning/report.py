"""The end of fine-tuning: report.html and the model's card, from the runs, the mistakes and the simple models beside."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.model.config import num_parameters
from bertkit.pages.finetuning import DataFile, DevPoint, FinetuningReport, LossPoint, Run, finetuning_page
from bertkit.pages.finetuning_card import finetuning_card
from bertkit.pages.frame import save
from bertkit.tasks.predicting import Chunk
from bertkit.tasks.reading.splits import count_classes
from bertkit.training.curves import thin
from bertkit.training.finetuning.baseline import measure_baselines
from bertkit.training.finetuning.cells import Cell
from bertkit.training.finetuning.data import find_long
from bertkit.training.finetuning.evaluation import FEW_STEPS
from bertkit.training.finetuning.mistakes import find_mistakes
from bertkit.training.toml_text import to_plain, write_toml

if TYPE_CHECKING:
    from bertkit.training.finetuning.finetune import Finetuned

REPORT, CARD = "report.html", "README.md"
SHOWN_SETTINGS = ("batch_size", "learning_rate", "epochs", "seed")
NOT_SCORES = ("kind", "step", "epoch", "loss", "is_best", "evaluation_seconds")


def write_pages(folder: Path, report: FinetuningReport) -> None:
    """Write report.html and README.md into the model's folder."""
    named = replace(report, name=folder.name)
    save(folder / REPORT, finetuning_page(named))
    (folder / CARD).write_text(finetuning_card(named), encoding="utf-8")


def make_report(result: "Finetuned") -> FinetuningReport:
    """Everything that the page and the card show."""
    task, model, summary, given = result.task, result.model, result.best.summary, result.prepared
    found = find_mistakes(task, model, given.data.dev)
    baselines = measure_baselines(task, given.train, given.dev)
    kind = "regression" if model.config.problem == "regression" else task.name
    return FinetuningReport(
        name=task.name,
        task=kind,
        base=Path(given.base.source).name,
        num_parameters=num_parameters(model.config),
        metric=result.metric,
        data=[
            _data_file("train", given.sources[0], given.data.train, given.num_left_out[0]),
            _data_file("dev", given.sources[1], given.data.dev, given.num_left_out[1]),
        ],
        scores=found.scores if task.settings() else summary.scores,
        labels=() if kind == "regression" else model.config.labels,
        baseline=baselines.name,
        baseline_scores=baselines.scores,
        majority_scores=baselines.majority,
        losses=thin([LossPoint(row["step"], row["loss"]) for row in summary.history if row["kind"] == "step"]),
        evaluations=[_dev_point(row) for row in summary.history if row["kind"] == "evaluation"],
        confusion=found.confusion,
        classes=found.classes,
        runs=_runs(result.cells, result.best),
        mistakes=found.mistakes,
        num_mistakes=found.num_mistakes,
        notes=[*given.notes, *_notes(result.cells)],
        settings=write_toml(to_plain(result.config)),
        seconds=sum(cell.summary.seconds for cell in result.cells),
        device=f"{result.device}, {result.precision}",
    )


def _data_file(name: str, file: str, chunks: Sequence[Chunk[Any]], num_left_out: int) -> DataFile:
    long = [find_long(chunk) for chunk in chunks]
    return DataFile(
        name=name,
        file=file,
        num_examples=sum(len(chunk.examples) for chunk in chunks),
        num_cut=sum(len(one.cut) for one in long),
        num_windowed=sum(len(one.windowed) for one in long),
        num_left_out=num_left_out,
        classes=count_classes(getattr(example, "label", None) for chunk in chunks for example in chunk.examples),
    )


def _dev_point(row: dict[str, Any]) -> DevPoint:
    scores = {name: value for name, value in row.items() if name not in NOT_SCORES}
    return DevPoint(row["step"], scores, row["loss"])


def _runs(cells: Sequence[Cell], best: Cell) -> list[Run]:
    """Every run, those that collapsed and were begun anew included."""
    rows = []
    for cell in cells:
        settings = {name: cell.summary.config[name] for name in SHOWN_SETTINGS}
        for seed, why in cell.collapsed:
            rows.append(Run({**settings, "seed": seed}, {}, f"{why}; begun anew with another seed"))
        rows.append(Run(settings, cell.summary.scores, cell.summary.collapsed or "", cell is best))
    return rows


def _notes(cells: Sequence[Cell]) -> list[str]:
    """What happened on the way: memory, early stopping, collapse."""
    lines = []
    for cell in cells:
        lines += [
            f"{cell.name}: {row['text']}" for row in cell.summary.history if "out of memory" in str(row.get("text"))
        ]
        lines += [f"{cell.name}: collapsed with seed {seed} ({why}); begun anew" for seed, why in cell.collapsed]
        if cell.summary.collapsed:
            few = cell.summary.num_steps < FEW_STEPS
            remedy = "it had few steps: try more epochs, a higher rate" if few else "try other seeds, a lower rate"
            lines.append(f"{cell.name}: collapsed ({cell.summary.collapsed}); {remedy}")
        if cell.summary.stopped_by:
            lines.append(f"{cell.name}: {cell.summary.stopped_by}, at step {cell.summary.step:,}")
    return lines
