"""`bertkit study`: the paper's findings, run again at a scale that one machine can afford."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertkit.cli.options import MOST_AT_ONCE, JsonOption
from bertkit.cli.output import console, note, print_json, table
from bertkit.cli.places import check_folder
from bertkit.errors import BertkitError

if TYPE_CHECKING:
    from bertkit.studies.study.request import StudyOutcome
    from bertkit.studies.study.result import Measure, StudyResult


def study(
    name: Annotated[
        str,
        typer.Argument(
            help="direction, masking, size, steps, nsp, features, context or compute; all; or report, to write up results."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of results, shared by studies.")],
    scale: Annotated[
        str, typer.Option(help="minutes (two CPU cores, about ten minutes) or gpu (one H200).")
    ] = "minutes",
    data: Annotated[Path | None, typer.Option(help="The folder that holds corpus/ and tasks/.")] = None,
    store: Annotated[str, typer.Option(help="Token store to pre-train on; made from the data where not needed.")] = "",
    tokenizer: Annotated[str, typer.Option(help="The vocabulary that the store was made with.")] = "",
    held_out: Annotated[str, typer.Option(help="Token store of held-out text; made from the data if left out.")] = "",
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="Finished checkpoint, for features and context.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the study's recipe.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Repetitions; 3 unless said.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after so long; the same command goes on.")] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")] = "auto",
    workers: Annotated[
        int, typer.Option(min=0, max=MOST_AT_ONCE, help="Processes that share the device; 0 chooses.")
    ] = 0,
    recipe: Annotated[Path | None, typer.Option(help="Another recipe of this study.")] = None,
    docs: Annotated[Path | None, typer.Option(help="With report: the folder that findings.md is written to.")] = None,
    json: JsonOption = False,
) -> None:
    """Run one of the paper's comparisons again, with seeds, spreads, and what this scale can and cannot show.

    Finished parts are kept: a killed study goes on with the same command. `report` writes results up as findings.md.

    Example: bertkit study direction --scale minutes --data shared/data -o studies
    """
    from bertkit.studies.study.run import run_studies, write_up

    if name == "report":
        written = write_up(output, docs or output)
        print_json({"report": str(written)}) if json else console().print(f"Report: {written}", soft_wrap=True)
        return
    if docs is not None:
        raise BertkitError("--docs is for `bertkit study report`; leave it out")
    check_folder(output)
    outcomes = run_studies(
        name,
        out=output,
        scale=scale,
        data=data,
        store=store,
        tokenizer=tokenizer,
        held_out=held_out,
        models=model or (),
        changes=changes or (),
        seeds=seeds,
        minutes=minutes,
        device=device,
        workers=workers,
        recipe=recipe,
        command=said_command(sys.argv[1:]),
        shown=not json,
    )
    if json:
        print_json([outcome.result.to_json() for outcome in outcomes])
    for outcome in outcomes:
        show(outcome, json=json)
    if any(outcome.missing for outcome in outcomes):
        raise typer.Exit(1)


def said_command(given: list[str]) -> str:
    """As it is written into results: paths from here, and without what only says how long to go on for now."""
    words, words_left = [], iter(given)
    for word in words_left:
        option, _, value = word.partition("=")
        if option in ("--minutes", "--json"):
            if option == "--minutes" and not value:
                next(words_left, None)
        else:
            words.append(os.path.relpath(word) if os.path.isabs(word) else word)
    return shlex.join(["bertkit", *words])


def show(outcome: "StudyOutcome", *, json: bool) -> None:
    """The table of a study, its notes, and where the rest is."""
    result = outcome.result
    if not json:
        console().print(f"\n{result.question}\n", soft_wrap=True)
        show_scores(result)
        for line in result.notes:
            note(f"- {line}")
        console().print(f"Report: {outcome.folder / 'report.html'}", soft_wrap=True)
    if outcome.missing:
        left = f"{len(outcome.missing)} parts left; the same command goes on"
        is_stop = (outcome.stopped_by or "").startswith(("SIG", "the time"))
        note(
            f"stopped by {outcome.stopped_by}, {left}"
            if is_stop
            else f"{outcome.stopped_by or 'not all is done'}; {left}"
        )


def show_scores(result: "StudyResult") -> None:
    """Means and spreads; a star where the difference from the baseline is outside the noise."""
    shown = table("arm", *(measure.name for measure in result.measures))
    for arm in result.arms:
        cells = [score_cell(result, arm.name, measure) for measure in result.measures]
        shown.add_row(arm.label, *cells)
    console().print(shown)
    console().print(f"* differs from {result.baseline!r} outside the noise: {result.test}", soft_wrap=True)


def score_cell(result: "StudyResult", arm: str, measure: "Measure") -> str:
    """Of one arm; what was measured once has no spread."""
    found, difference = result.summary(arm, measure.name), result.difference(arm, measure.name)
    if found is None:
        return ""
    spread = f" ± {found.spread:.{measure.decimals}f}" if found.has_spread else ""
    star = " *" if arm != result.baseline and difference and difference.is_outside_noise else ""
    return f"{found.mean:.{measure.decimals}f}{spread}{star}"
