"""`bertkit finetune`: a file of examples in, a trained, evaluated and explained model out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertkit.cli.options import MOST_SEED, DeviceOption, JsonOption, LongOption, ModelOption
from bertkit.cli.output import console, note, print_json, table
from bertkit.cli.places import check_folder
from bertkit.errors import BertkitError

if TYPE_CHECKING:
    from bertkit.training.finetuning.finetune import Finetuned

ColumnsOption = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="ROLE=NAME", help="Which column is what: text=review, pair=..., label=stars."),
]

SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Leave bad rows out, counted and named, instead of stopping at the first.")
]


def finetune(
    task: Annotated[str, typer.Argument(help="classification (also regression), tagging or answering.")],
    train: Annotated[Path, typer.Option(help="Training examples: csv, tsv, jsonl, parquet, CoNLL or SQuAD JSON.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the model, its report and its runs.")],
    model: ModelOption = "",
    dev: Annotated[Path | None, typer.Option(help="Development examples; without them a part is held out.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="epochs=4, learning_rate=2e-5, batch_size=16, patience=2, ..."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs with so many seeds: mean and spread.")] = 1,
    grid: Annotated[str, typer.Option(help="paper: batch 16, 32 x rate 5e-5, 3e-5, 2e-5 x epochs 2, 3, 4.")] = "",
    long: LongOption = "window",
    columns: ColumnsOption = None,
    skip_bad: SkipBadOption = False,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Fine-tune a BERT on your examples. A killed run goes on when the same command is given again.

    Example: bertkit finetune classification -m small-en --train train.csv --dev dev.csv -o reviews

    The folder holds the model of the best run, report.html, README.md and the journals of all runs.
    """
    from bertkit.tasks.registry import reader_options
    from bertkit.training.finetuning.config import grid_of, make_config, parse_settings
    from bertkit.training.finetuning.finetune import Interrupted, run_finetuning
    from bertkit.training.finetuning.live import TaskLine

    config = make_config({"long": long, "device": device, **parse_settings(changes or ())})
    if config.seed + seeds > MOST_SEED:
        raise BertkitError(f"seed is {config.seed}; it must be below 2**63")
    next(grid_of(config, grid, seeds))  # a grid that nobody knows is refused before anything is read or written
    check_folder(output)
    with TaskLine(shown=not json) as live:
        found = run_finetuning(
            task, model, train, dev, output, config, seeds, grid, reader_options(columns, skip_bad), watcher=live
        )
    if isinstance(found, Interrupted):
        note(f"stopped by {found.stopped_by}; the same command goes on")
        raise typer.Exit(1)
    if json:
        print_json(_plain(found, output))
        return
    _show(found, output)


def _plain(found: "Finetuned", output: Path) -> dict[str, Any]:
    return {
        "folder": str(output),
        "task": found.task.name,
        "metric": found.metric,
        "scores": found.scores,
        "baseline": {"name": found.report.baseline, "scores": dict(found.report.baseline_scores)},
        "spread": [one.__dict__ for one in found.spread],
        "runs": [{"name": cell.name, **cell.to_json()["summary"], "history": None} for cell in found.cells],
        "collapsed": {cell.name: [list(one) for one in cell.collapsed] for cell in found.cells if cell.collapsed},
        "stopped_by": found.stopped_by,
    }


def _show(found: "Finetuned", output: Path) -> None:
    report = found.report
    others = {report.baseline: report.baseline_scores, "always the most frequent": report.majority_scores}
    columns = {name: scores for name, scores in others.items() if scores}
    shown = table("score on the development set", "this model", *columns)
    for name, value in report.scores.items():
        cells = (f"{scores[name]:.4f}" if name in scores else "" for scores in columns.values())
        shown.add_row(name, f"{value:.4f}", *cells)
    console().print(shown)
    for spread in found.spread if len(found.cells) > 1 else ():
        console().print(spread.line(found.metric), soft_wrap=True)
    console().print(f"Model: {output}    Report: {output / 'report.html'}", soft_wrap=True)
