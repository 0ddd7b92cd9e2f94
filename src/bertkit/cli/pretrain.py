"""`bertkit pretrain`: train a BERT as a recipe says, and go on where it was killed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertkit.cli.options import JsonOption
from bertkit.cli.output import console, print_json, table
from bertkit.cli.places import check_folder
from bertkit.text.counted import counted, in_millions

if TYPE_CHECKING:
    from bertkit.training.estimate.recipe import Estimate
    from bertkit.training.run import RunResult


def pretrain(
    recipe: Annotated[Path, typer.Argument(help="Recipe: a TOML file such as recipes/tiny-cpu.toml.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key; may be given often.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "--output", "-o", help="Folder of the run: checkpoints, journal, model, report.")
    ] = Path("run"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint, where there is one.")
    ] = False,
    steps: Annotated[int | None, typer.Option(help="So many steps in place of what the recipe says.")] = None,
    minutes: Annotated[float | None, typer.Option(help="A time budget in place of what the recipe says.")] = None,
    init: Annotated[str | None, typer.Option(help="Go on from this checkpoint's weights.")] = None,
    objective: Annotated[
        str | None, typer.Option(help="mlm, or ltr: left to right, to compare with; as the recipe says.")
    ] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Only say what it will take on this machine.")] = False,
    json: JsonOption = False,
) -> None:
    """Pre-train a BERT with masked language modelling and next sentence prediction; it may be killed and resumed.

    Example: bertkit pretrain recipes/tiny-cpu.toml --set data.store=store --set data.tokenizer=vocab
    --set data.held_out=held-out --out run

    Several GPUs: torchrun --nproc-per-node 8 -m bertkit.cli.main pretrain RECIPE.toml --out run
    """
    from bertkit.training.recipe import read_recipe

    changes = [*(changes or ()), *([f"objective={objective}"] if objective else ())]
    read = read_recipe(recipe, changes, steps=steps, minutes=minutes, init=init)
    if estimate:
        from bertkit.training.estimate.recipe import estimate_recipe

        found = estimate_recipe(read, out)
        print_json(found.to_json()) if json else _show_estimate(found)
        return
    check_folder(out)
    from bertkit.training.live import LiveLine
    from bertkit.training.run import run_pretraining
    from bertkit.training.world import is_first_process, leave_world

    with LiveLine(shown=is_first_process() and not json) as live:
        result = run_pretraining(read, out, resume=resume, observer=live)
    if is_first_process():
        _show_result(result, out, json=json)
    leave_world()
    if result.stopped_by:
        raise typer.Exit(1)  # what a script would do next needs a finished run


def _show_result(result: "RunResult", out: Path, *, json: bool) -> None:
    if json:
        print_json(result.__dict__)
    elif result.stopped_by:
        console().print(f"stopped by {result.stopped_by} at step {result.step}; go on with --resume", soft_wrap=True)
    else:
        console().print(
            f"{counted(result.step, 'step')} done. Model: {out / 'model'}    Report: {out / 'report.html'}",
            soft_wrap=True,
        )


def _show_estimate(found: "Estimate") -> None:
    shown = table("what", "estimate")
    for what, figure in _rows(found):
        shown.add_row(what, figure)
    console().print(shown)
    stages = table("stage", "steps", "tokens", "epochs", "seconds a step", "measured")
    for number, stage in enumerate(found.stages, start=1):
        stages.add_row(
            f"{number}: {stage.max_length} tokens",
            f"{stage.steps:,}",
            f"{stage.tokens / 1e6:,.1f} M",
            "unknown" if stage.epochs is None else f"{stage.epochs:,.2f}",
            f"{stage.seconds_per_step:,.3f}",
            f"{stage.num_timed} {'parts of steps' if stage.measured_on else 'steps'}",
        )
    console().print(stages)
    for note in found.notes:
        console().print(f"- {note}", soft_wrap=True)


def _rows(found: "Estimate") -> list[tuple[str, str]]:
    gib = 2**30
    peak = found.measured_memory_bytes
    measured = "" if peak is None else f" (measured: {peak / gib:.2f} GiB)"
    corpus = f" over {in_millions(found.corpus_tokens)} tokens" if found.corpus_tokens else ""
    days = f" = {found.hours / 24:,.1f} days" if found.hours > 48 else ""
    parts = f"evaluation {found.evaluation_hours:,.2f}, checkpoints {found.checkpoint_hours:,.2f}"
    rows = [
        ("device", f"{found.device}, {found.precision}"),
        ("parameters", f"{found.num_parameters:,}"),
        ("steps", f"{found.steps:,}"),
        ("tokens", f"{found.tokens:,}"),
        ("epochs", "unknown: no store yet" if found.epochs is None else f"{found.epochs:,.2f}{corpus}"),
        ("FLOPs", f"{found.flops:.3g}"),
        ("hours", f"{found.hours:,.2f}{days} ({found.hours_low:,.2f} to {found.hours_high:,.2f}); of these {parts}"),
        ("memory", f"{found.memory_bytes / gib:.2f} GiB{measured}; {found.available_memory_bytes / gib:.1f} GiB here"),
        ("disk", f"{found.disk_bytes / gib:.2f} GiB; {found.free_disk_bytes / gib:.1f} GiB free"),
    ]
    return rows + ([("published run", found.published)] if found.published else [])
