"""`bertkit pretrain`: train a BERT as a recipe says, and go on where it was killed."""

from pathlib import Path
from typing import Annotated

import typer

from bertkit.cli.options import JsonOption
from bertkit.cli.output import console, print_json, table


def pretrain(
    recipe: Annotated[Path, typer.Argument(help="Recipe: a TOML file such as recipes/tiny-cpu.toml.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key; may be given often.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run: checkpoints, journal, model, report.")] = Path("run"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint, where there is one.")
    ] = False,
    minutes: Annotated[float | None, typer.Option(help="A time budget in place of the recipe's steps.")] = None,
    init: Annotated[str | None, typer.Option(help="Go on from this checkpoint's weights.")] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Only say what it will take on this machine.")] = False,
    json: JsonOption = False,
) -> None:
    """Pre-train a BERT with masked language modelling and next sentence prediction; it may be killed and resumed.

    Example: bertkit pretrain recipes/tiny-cpu.toml --set data.store=store --set data.tokenizer=vocab --out run

    Several GPUs: torchrun --nproc-per-node 8 -m bertkit.cli.main pretrain RECIPE.toml --out run
    """
    from bertkit.training.recipe import read_recipe

    read = read_recipe(recipe, changes or (), minutes=minutes, init=init)
    if estimate:
        from bertkit.training.opening import estimate_recipe

        _show_estimate(estimate_recipe(read).__dict__, json)
        return
    from bertkit.training.live import LiveLine
    from bertkit.training.run import run_pretraining
    from bertkit.training.world import is_first_process

    with LiveLine(shown=is_first_process() and not json) as live:
        result = run_pretraining(read, out, resume=resume, observer=live)
    if not is_first_process():
        return
    if json:
        print_json(result.__dict__)
    elif result.stopped_by:
        console().print(f"stopped by {result.stopped_by} at step {result.step}; go on with --resume", soft_wrap=True)
    else:
        console().print(
            f"{result.step} steps done. Model: {out / 'model'}    Report: {out / 'report.html'}", soft_wrap=True
        )


def _show_estimate(found: dict[str, float], json: bool) -> None:
    if json:
        print_json(found)
        return
    shown = table("what", "estimate")
    shown.add_row("parameters", f"{found['num_parameters']:,}")
    shown.add_row("steps", f"{found['steps']:,}")
    shown.add_row("tokens", f"{found['tokens']:,}")
    shown.add_row("hours", f"{found['hours']:.2f}")
    shown.add_row("seconds a step", f"{found['seconds_per_step']:.3f}")
    shown.add_row("memory", f"{found['memory_bytes'] / 2**30:.1f} GiB")
    shown.add_row("disk", f"{found['disk_bytes'] / 2**30:.2f} GiB")
    shown.add_row("device", str(found["device"]))
    console().print(shown)
