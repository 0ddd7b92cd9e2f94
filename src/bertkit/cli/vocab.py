"""`bertkit vocab train` and `bertkit vocab extend`: learn a vocabulary, or add words to a model that has one."""

from pathlib import Path
from typing import Annotated

import typer

from bertkit.cli import places
from bertkit.cli.options import JsonOption
from bertkit.cli.output import console, note, print_json, progress_counter
from bertkit.cli.places import check_folder, with_paths
from bertkit.errors import BertkitError

MOST_TOKENS = 4_000_000  # beyond, memory is reserved that few machines have

app = typer.Typer(
    name="vocab", help="Learn a vocabulary, or add words to a model's.", no_args_is_help=True, add_completion=False
)

FieldOption = Annotated[str, typer.Option(help="The field of a .jsonl row or column of a .parquet file.")]
HeldOutOption = Annotated[
    Path | None, typer.Option("--held-out", help="Measure the vocabulary on this file (.txt, .jsonl, .parquet).")
]


@app.command()
@with_paths
def train(
    files: Annotated[list[str], typer.Argument(help="Files or folders: .txt, .jsonl, .parquet (.gz, .xz, .zst).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    size: Annotated[
        int, typer.Option(max=MOST_TOKENS, help="Tokens in the vocabulary, special ones included.")
    ] = 30_000,
    cased: Annotated[bool, typer.Option("--cased", help="Keep capitals and accents.")] = False,
    sample: Annotated[str, typer.Option(help="Learn from so much text, drawn by chance.")] = "200MB",
    seed: Annotated[int, typer.Option(help="Of the sample; the same files and seed give the same ids.")] = 0,
    unused: Annotated[int, typer.Option(help="\\[unused] rows, for words that are added later.")] = 0,
    held_out: HeldOutOption = None,
    field: FieldOption = "text",
    json: JsonOption = False,
) -> None:
    """Learn a WordPiece vocabulary and write vocab.txt, tokenizer.json and tokenizer_config.json.

    Memory is bounded by the sample, however much text there is. Without --held-out, a few paragraphs are held out.

    Example: bertkit vocab train texts/ -o my-vocab --size 30000 --sample 200MB
    """
    from bertkit.text.documents import ReadOptions
    from bertkit.tokenizer.learning import VocabularyOptions, learn_vocabulary, parse_size

    check_folder(output)
    if (output / "config.json").is_file():
        raise BertkitError(f"{output} holds a model, whose words these would not be; choose another folder")
    options = VocabularyOptions(
        size=size, lowercase=not cased, sample_bytes=parse_size(sample), seed=seed, num_unused=unused
    )
    with progress_counter("paragraphs read and counted") as progress:
        learned = learn_vocabulary(
            files,
            options,
            reading=ReadOptions(field=field),
            held_out=held_out,
            step=lambda _, amount: progress(amount),
        )
    learned.tokenizer.save(output)
    if json:
        print_json({"output": str(output), **learned.to_json()})
        return
    for line in learned.lines():
        console().print(line, soft_wrap=True)
    note(f"written to {output}")


@app.command()
@with_paths
def extend(
    model: Annotated[str, typer.Argument(help="Checkpoint: a folder, a TF1 prefix, a bundled model or a hub name.")],
    words: Annotated[str, typer.Argument(parser=places.file, help="A file with one word a line, or - for stdin.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    into_unused: Annotated[
        bool, typer.Option("--into-unused", help="Replace \\[unused] rows; by default the vocabulary grows.")
    ] = False,
    held_out: HeldOutOption = None,
    field: FieldOption = "text",
    json: JsonOption = False,
) -> None:
    """Add words to a model's vocabulary; each starts as the mean of the pieces that it was cut into before.

    Example: bertkit vocab extend small-en medical-terms.txt -o my-medical-bert --held-out reports.txt
    """
    from bertkit.inference.extend_vocabulary import extend_checkpoint
    from bertkit.text.documents import ReadOptions
    from bertkit.text.lines import read_texts
    from bertkit.tokenizer.learning import read_held_out

    check_folder(output)
    texts = read_held_out(held_out, ReadOptions(field=field)) if held_out else []
    report = extend_checkpoint(model, read_texts(words, field), output, into_unused=into_unused, held_out=texts)
    if json:
        print_json({"output": str(output), **report.to_json()})
        return
    for line in report.lines():
        console().print(line, soft_wrap=True)
    note(f"written to {output}")
