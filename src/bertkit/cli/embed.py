"""`bertkit embed`: one vector a text, from arguments, a file or standard input."""

import sys
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertkit.cli import places
from bertkit.cli.options import DeviceOption, JsonOption, LongOption, ModelOption
from bertkit.cli.output import note, print_json, progress_counter
from bertkit.cli.places import check_apart, check_file

if TYPE_CHECKING:
    from bertkit.inference.embedding import Vectors


def embed(
    model: ModelOption = "",
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; leave out to read --file.")] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            parser=places.file,
            help=".txt, .jsonl, .csv, .tsv, .parquet (also .gz, .xz), or - for stdin.",
        ),
    ] = None,
    field: Annotated[
        str, typer.Option(help="The field of a .jsonl line or column of a table that holds the text.")
    ] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help=".npy, .parquet or .jsonl.")] = None,
    pooling: Annotated[
        str | None, typer.Option(help="mean, cls or max; by default what the model was tuned for, else mean.")
    ] = None,
    layer: Annotated[
        str,
        typer.Option(help="A number from 1 (0: embeddings, -1: last), or mean-, sum- or concat- with last-4 or all."),
    ] = "-1",
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="Scale vectors to length 1, or do not.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float16.")] = "float32",
    long: LongOption = "window",
    device: DeviceOption = "auto",
    engine: Annotated[str, typer.Option(help="auto, torch; on CPUs onnx or int8; on GPUs float8.")] = "auto",
    json: JsonOption = False,
) -> None:
    """Turn texts into vectors. Memory stays bounded and the order is kept, however many texts there are.

    Without --output, one JSON object a text goes to standard output; with --json they are one JSON array.

    Example: bertkit embed -m small-en -f sentences.txt -o vectors.npy --normalize
    """
    from bertkit.inference.loading import load
    from bertkit.inference.vector_files import JsonlWriter, embed_to_file, parse_layer, write_vectors
    from bertkit.tasks.reading.chosen import chosen_texts

    check_file(output)
    check_apart(file or "", output)
    options: dict[str, Any] = {"layer": parse_layer(layer), "dtype": dtype, "long": long}
    options |= {} if pooling is None else {"pooling": pooling}
    options |= {} if normalize is None else {"normalize": normalize}
    source = chosen_texts(texts, file, field)
    bert = load(model, device=device, engine=engine)
    if output is None:
        array = ArrayWriter()
        write_vectors(bert, source, array if json else JsonlWriter(sys.stdout), **options)
        if json:
            array.close()
        return
    with progress_counter("texts") as progress:
        count, width = embed_to_file(bert, source, output, progress=progress, **options)
    if json:
        print_json(
            {"output": str(output), "texts": count, "dimensions": width, **asdict(bert.embed_options(**options))}
        )
    else:
        note(f"{count:,} vector{'s' * (count != 1)} of {width} dimensions written to {output}")


class ArrayWriter:
    """One JSON array on standard output, written as the vectors come."""

    def __init__(self) -> None:
        self.before = "[\n"

    def write(self, texts: list[str], vectors: "Vectors") -> None:
        """Append these."""
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            sys.stdout.write(self.before + dumps({"text": text, "vector": vector}, ensure_ascii=False))
            self.before = ",\n"

    def close(self) -> None:
        """End the array, also one of nothing."""
        sys.stdout.write("[]\n" if self.before == "[\n" else "\n]\n")
