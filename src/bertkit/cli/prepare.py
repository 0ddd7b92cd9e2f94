"""`bertkit prepare`: text files to a token store."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bertkit.cli.options import MOST_AT_ONCE, JsonOption
from bertkit.cli.output import console, note, print_json, progress_counter
from bertkit.cli.places import check_folder
from bertkit.errors import BertkitError


def prepare(
    files: Annotated[list[str], typer.Argument(help=".txt, .jsonl, .parquet (also .gz, .xz, .zst), or folders.")],
    tokenizer: Annotated[
        Path, typer.Option("--tokenizer", "-t", help="Folder of a vocabulary or a checkpoint, or a bundled model.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the store; an unfinished one is finished.")],
    documents: Annotated[
        str, typer.Option(help="What a document of a .txt file is: blank-line (between them), row (a line) or file.")
    ] = "blank-line",
    sentences: Annotated[
        str, typer.Option(help="split: find the sentences of each line; line: one a line already.")
    ] = "split",
    field: Annotated[str, typer.Option(help="The field of a .jsonl row or column of a .parquet file.")] = "text",
    dedup: Annotated[bool, typer.Option("--dedup/--no-dedup", help="Leave out paragraphs seen before.")] = True,
    workers: Annotated[
        int | None, typer.Option(min=1, max=MOST_AT_ONCE, help="Processes; all cores by default.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask after the estimate.")] = False,
    only_estimate: Annotated[bool, typer.Option("--estimate", help="Only say how large and how long.")] = False,
    json: JsonOption = False,
) -> None:
    """Turn text into a token store for pre-training: cleaned, split into sentences, without duplicates, encoded once.

    Killed and started again with the same arguments it goes on, and the files are the same.

    Example: bertkit prepare corpus/*.txt.xz --tokenizer vocab-en -o store-en
    """
    from bertkit.corpus.prepare.blocks import PrepareOptions
    from bertkit.corpus.prepare.estimate import estimate
    from bertkit.corpus.prepare.run import prepare as run
    from bertkit.text.reports import ReadReport
    from bertkit.tokenizer import Tokenizer

    given: Any = {"documents": documents, "sentences": sentences, "field": field, "dedup": dedup}
    options = PrepareOptions(**given)
    if not only_estimate:
        check_folder(output)
    loaded = Tokenizer.load(tokenizer)
    expected = estimate(files, loaded, output, options, workers=workers)
    if only_estimate:
        print_json(expected.to_json()) if json else console().print(expected.line(), soft_wrap=True)
        return
    note(expected.line())
    if not yes:
        expected.check_disk(output)
        if sys.stdin.isatty():
            typer.confirm("Go on?", default=True, abort=True, err=True)
    with progress_counter("characters") as progress:
        report = run(files, loaded, output, options, progress, workers=workers)
    if not report.num_tokens:
        why = ReadReport.from_json(report.read).why_nothing
        raise BertkitError(f"{output} is empty, nothing was read{why}; remove it, mend this and start again")
    if json:
        print_json(report.to_json())
        return
    for line in report.lines():
        console().print(line, soft_wrap=True)
