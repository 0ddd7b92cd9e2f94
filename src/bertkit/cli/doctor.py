"""`bertkit doctor`: is the data fit to train on, can the model learn, is the machine enough."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertkit.cli.options import JsonOption
from bertkit.cli.output import console, note, print_json, progress_counter, table
from bertkit.errors import BertkitError
from bertkit.text.counted import counted

if TYPE_CHECKING:
    from bertkit.corpus.doctor.sample import Source
    from bertkit.text.findings import Finding

COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def doctor(
    paths: Annotated[
        list[Path], typer.Argument(help="A recipe (.toml) and/or a token store, or text files and folders.")
    ],
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", "-t", help="A vocabulary, as in prepare; a recipe names its own.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe.")
    ] = None,
    init: Annotated[str | None, typer.Option(help="Examine going on from this checkpoint's weights.")] = None,
    out: Annotated[Path, typer.Option(help="Where the run would be written, for its disk.")] = Path("run"),
    sample: Annotated[str, typer.Option(help="Look at so much of the text.")] = "20MB",
    documents: Annotated[str, typer.Option(help="As in prepare, for text files.")] = "blank-line",
    sentences: Annotated[str, typer.Option(help="As in prepare, for text files.")] = "split",
    field: Annotated[str, typer.Option(help="As in prepare, for text files.")] = "text",
    accept: Annotated[
        list[str] | None, typer.Option(metavar="CHECK", help="A problem that is meant: a warning instead.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Examine data, model and machine before hours are spent: ok, warning or problem, with what to do about it.

    Exit code 0 without problems, 1 with problems, 2 when the input is wrong. Nothing is written.

    Example: bertkit doctor recipes/tiny-cpu.toml --set data.store=store --set data.tokenizer=vocab
    --set data.held_out=held-out

    Example: bertkit doctor corpus/*.txt -t vocab
    """
    from bertkit.text.findings import accept as accepted
    from bertkit.tokenizer.learning import parse_size

    given: dict[str, Any] = {"documents": documents, "sentences": sentences, "field": field}
    recipes, others = [p for p in paths if p.suffix == ".toml"], [p for p in paths if p.suffix != ".toml"]
    if len(recipes) > 1 or (not recipes and (changes or init)):
        raise BertkitError("give at most one recipe; --set and --init are for a recipe")
    if recipes:
        findings = _recipe_findings(
            recipes[0], others, tokenizer, changes or [], init, out, parse_size(sample), given, shown=not json
        )
    else:
        findings = _data_findings(_open(others, tokenizer, parse_size(sample), given))
    checks = {finding.check for finding in findings}
    for name in accept or ():
        if name not in checks:
            note(f"--accept {name}: no such check was made; they are {', '.join(sorted(checks))}")
    findings = accepted(findings, accept or [])
    print_json([finding.to_json() for finding in findings]) if json else _show(findings)
    if any(finding.level == "problem" for finding in findings):
        raise typer.Exit(1)


def _recipe_findings(
    path: Path,
    others: list[Path],
    tokenizer: Path | None,
    changes: list[str],
    init: str | None,
    out: Path,
    sample: int,
    given: dict[str, Any],
    *,
    shown: bool,
) -> list["Finding"]:
    from bertkit.training.doctor.examine import CheckUp, examine_recipe
    from bertkit.training.recipe import read_recipe

    changes = [*changes, *([f"data.tokenizer={tokenizer}"] if tokenizer else [])]
    recipe = read_recipe(path, changes, init=init)
    folder = Path(recipe.data.tokenizer) if recipe.data.tokenizer else None
    source = _open(others, folder, sample, given) if others else None
    with _status(shown=shown) as progress:
        return list(examine_recipe(recipe, CheckUp(out, sample, progress), source))


def _open(paths: list[Path], tokenizer: Path | None, sample: int, given: dict[str, Any]) -> "Source":
    """A token store, or text files and folders."""
    from bertkit.corpus.doctor.sample import StoreSource, TextSource
    from bertkit.corpus.prepare.blocks import PrepareOptions
    from bertkit.corpus.store import MANIFEST, TokenStore
    from bertkit.tokenizer import Tokenizer

    if tokenizer is None:
        raise BertkitError("say which vocabulary the text is for: --tokenizer FOLDER, or give a recipe")
    loaded = Tokenizer.load(tokenizer)
    if len(paths) == 1 and (paths[0] / MANIFEST).is_file():
        return StoreSource(TokenStore.open(paths[0], loaded), loaded, sample)
    return TextSource(paths, loaded, sample, PrepareOptions(**given))


def _data_findings(source: "Source") -> list["Finding"]:
    from bertkit.corpus.doctor.findings import data_findings
    from bertkit.corpus.doctor.look import look_at

    with progress_counter("characters") as progress:
        return data_findings(look_at(source, progress))


@contextmanager
def _status(*, shown: bool) -> Iterator[Callable[[str], None]]:
    """A live line on standard error that says what is being examined."""
    if not (shown and sys.stderr.isatty()):
        yield lambda line: None
        return
    from rich.console import Console

    with Console(stderr=True).status("looking") as live:
        yield live.update


def _show(findings: list["Finding"]) -> None:
    from rich.text import Text

    shown = table("check", "", "what was found", "what to do")
    for finding in findings:
        shown.add_row(finding.check, Text(finding.level, style=COLOURS[finding.level]), finding.figure, finding.advice)
    console().print(shown)
    levels = [finding.level for finding in findings]
    found = ", ".join(counted(levels.count(level), level) for level in ("problem", "warning"))
    console().print(f"{found}, {levels.count('ok')} ok")
