"""`bertkit tag`: named entities in texts."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from bertkit.cli import places
from bertkit.cli.options import DeviceOption, JsonOption, LongAsTrainedOption, ModelOption, StrideOption, check_stride
from bertkit.cli.output import console, print_json, table

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from bertkit.inference.tagging import TaggedText

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red")


def tag(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; leave out to read --file.")] = None,
    model: ModelOption = "",
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            parser=places.file,
            help=".txt, .jsonl, .csv, .tsv, .parquet (also .gz, .xz), or - for stdin; a text a line.",
        ),
    ] = None,
    field: Annotated[
        str, typer.Option(help="The field of a .jsonl line or column of a table that holds the text.")
    ] = "text",
    long: LongAsTrainedOption = None,
    stride: StrideOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Find named entities (or whatever the model was trained to tag), with their characters and confidence.

    Example: bertkit tag -m entities-en "Marie Curie was born in Warsaw."
    """
    from bertkit.inference.loading import load
    from bertkit.tasks.reading.chosen import chosen_texts

    check_stride(long, stride)
    source = chosen_texts(texts, file, field)
    tagged = load(model, device=device).tag_stream(source, long=long, stride=stride)
    if json:
        print_json([asdict(one) for one in tagged])
        return
    for one in tagged:
        console().print(_marked(one), soft_wrap=True)
        if texts and one.entities:
            console().print(_entities(one))


def _marked(tagged: "TaggedText") -> "Text":
    """The text with its entities coloured and named."""
    from rich.text import Text

    shown, place = Text(), 0
    for entity in tagged.entities:
        colour = COLOURS[sum(entity.kind.encode()) % len(COLOURS)]  # a kind has one colour in every run
        shown.append(tagged.text[place : entity.start])
        shown.append(entity.text, style=f"bold {colour}").append(f" {entity.kind}", style=f"dim {colour}")
        place = entity.end
    return shown.append(tagged.text[place:])


def _entities(tagged: "TaggedText") -> "Table":
    rows = table("entity", "kind", "characters", "confidence")
    for entity in tagged.entities:
        rows.add_row(entity.text, entity.kind, f"{entity.start}-{entity.end}", f"{entity.confidence:.4f}")
    return rows
