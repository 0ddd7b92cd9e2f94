"""`bertkit evaluate`: a fine-tuned model's scores on a file, or any checkpoint's on the whole suite."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from bertkit.cli.finetune import ColumnsOption, SkipBadOption
from bertkit.cli.options import MOST_AT_ONCE, DeviceOption, JsonOption, LongAsTrainedOption, ModelOption
from bertkit.cli.output import console, note, print_json, table
from bertkit.cli.places import check_folder
from bertkit.errors import BertkitError

if TYPE_CHECKING:
    from bertkit.studies.suite import SuiteOutcome
    from bertkit.training.precision import Precision


def evaluate(
    data: Annotated[
        Path | None,
        typer.Option(help="Examples with their truth; with --suite, the folder that holds corpus/ and tasks/."),
    ] = None,
    model: ModelOption = "",
    long: LongAsTrainedOption = None,
    columns: ColumnsOption = None,
    skip_bad: SkipBadOption = False,
    suite: Annotated[bool, typer.Option("--suite", help="Measure a checkpoint on everything; see docs.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Suite: folder of the report.")] = None,
    tasks: Annotated[str, typer.Option(help="Suite: only these parts, such as BLiMP,CoLA,held-out.")] = "",
    seeds: Annotated[int | None, typer.Option(help="Suite: runs of each fine-tuned task; 5 unless said.")] = None,
    limit: Annotated[int | None, typer.Option(help="Suite: at most so many examples of each set; for CPUs.")] = None,
    recipe: Annotated[Path | None, typer.Option(help="Suite: another suite.toml.")] = None,
    workers: Annotated[
        int, typer.Option(min=0, max=MOST_AT_ONCE, help="Suite: processes that share the device; 0 chooses.")
    ] = 0,
    precision: Annotated[
        str, typer.Option(help="Suite: float32, bfloat16 (also on CPUs that have it) or float16; auto chooses.")
    ] = "auto",
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Score a fine-tuned model on a file, or any checkpoint on the suite of tasks. A killed suite goes on.

    Example: bertkit evaluate -m reviews --data test.csv

    Example: bertkit evaluate -m small-en --suite --data shared/data -o report
    """
    alone = {"--long": long, "--column": columns, "--skip-bad": skip_bad}
    of_suite = {"--output": output, "--tasks": tasks, "--seeds": seeds, "--limit": limit, "--recipe": recipe}
    of_suite |= {"--workers": workers, "--precision": precision != "auto"}
    for name, given in (alone if suite else of_suite).items():
        if given:
            raise BertkitError(f"{name} is {'not for' if suite else 'for'} --suite; leave it out")
    if suite:
        from bertkit.studies.suite import run_suite

        if output is None:
            raise BertkitError("the suite needs a folder for its report: give -o FOLDER")
        check_folder(output)
        parts = [name.strip() for name in tasks.split(",") if name.strip()]
        outcome = run_suite(
            model,
            out=output,
            data=data,
            tasks=parts,
            seeds=seeds,
            limit=limit,
            recipe=recipe,
            device=device,
            workers=workers,
            precision=cast("Precision", precision),
            shown=not json,
        )
        _show_suite(outcome, json=json)
        return
    if data is None:
        raise BertkitError("no examples are named: give --data FILE, or --suite for the whole suite")
    _score_file(model, data, device, long, columns, skip_bad=skip_bad, json=json)


def _score_file(
    model: str, data: Path, device: str, long: str | None, columns: list[str] | None, *, skip_bad: bool, json: bool
) -> None:
    from bertkit.inference.loading import load
    from bertkit.tasks.registry import reader_options

    found = load(model, device=device).evaluate(data, long=long, columns=reader_options(columns, skip_bad))
    for line in found.lines:  # rows that were left out are among them: never in silence
        note(line)
    if json:
        print_json({"task": found.task, "examples": found.num_examples, "scores": found.scores})
        return
    shown = table("score", str(data))
    for name, value in found.scores.items():
        shown.add_row(name, f"{value:.4f}")
    console().print(shown)


def _show_suite(outcome: "SuiteOutcome", *, json: bool) -> None:
    results = outcome.results
    if json:
        print_json(results.to_json())
    else:
        from bertkit.studies.suite_live import result_line

        for name, part in results.untrained.items():
            if "skipped" not in part:
                console().print(result_line(name, part), soft_wrap=True)
        shown = table("task", "score", "median x 100", "deviation", "seeds")
        for task in results.tasks:
            seeds = ", ".join(f"{100 * score:.1f}" for score in task.scores)
            shown.add_row(task.name, task.metric, f"{100 * task.median:.1f}", f"{100 * task.deviation:.1f}", seeds)
        if results.tasks:
            console().print(shown)
        if results.average is not None:
            console().print(f"average of the five: {results.average:.1f}")
        for line in results.notes():
            note(line)
        console().print(f"Report: {outcome.folder / 'report.html'}", soft_wrap=True)
    if outcome.stopped_by:
        note(f"stopped by {outcome.stopped_by}; the same command goes on")
        raise typer.Exit(1)
