"""`bertkit features`: the vectors of a frozen encoder, to a file that heads are trained on."""

from pathlib import Path
from typing import Annotated

import typer

from bertkit.cli import places
from bertkit.cli.options import DeviceOption, JsonOption, LongOption, ModelOption
from bertkit.cli.output import note, print_json, progress_counter
from bertkit.cli.places import check_apart, check_file


def features(
    data: Annotated[
        str,
        typer.Argument(
            parser=places.file,
            help=".txt (a text a line), .csv, .tsv, .jsonl, .parquet, or for words a CoNLL file; packed too.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help=".parquet (with texts and labels) or .npy.")],
    model: ModelOption = "",
    layer: Annotated[
        str,
        typer.Option(
            help="A number from 1 (0: embeddings, -1: last, -2: second-to-last), the same in words, or mean-, sum-, concat- "
            "or weighted- with last-4 or all."
        ),
    ] = "concat-last-4",
    per: Annotated[str, typer.Option(help="text, or word (its first piece, as in the paper).")] = "text",
    pooling: Annotated[str, typer.Option(help="Of texts: mean, cls or max.")] = "mean",
    text: Annotated[str | None, typer.Option("--text", help="The column of the text; guessed if left out.")] = None,
    pair: Annotated[str | None, typer.Option("--pair", help="The column of the second text.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="The column of the label.")] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float16.")] = "float32",
    long: LongOption = "window",
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Run the encoder once and keep its vectors, with texts and labels beside them. Memory stays bounded.

    With weighted-last-4 or weighted-all the layers lie side by side, and `train-head` learns their weights.

    Example: bertkit features -m small-en eng.train -o train.parquet --per word --layer concat-last-4
    """
    from bertkit.inference.features.files import check_ending, features_to_file
    from bertkit.inference.features.input import open_examples
    from bertkit.inference.features.make import FeatureOptions
    from bertkit.inference.layers import check_layer
    from bertkit.inference.loading import load
    from bertkit.inference.vector_files import parse_layer
    from bertkit.tasks.reading.texts import TextOptions

    check_ending(output)
    check_file(output)
    check_apart(data, output)
    options = FeatureOptions(parse_layer(layer), per, pooling, dtype, long)  # type: ignore[arg-type]
    columns = TextOptions(text, pair, label, problem="single_label", labelled=label is not None)
    bert = load(model, device=device)
    check_layer(options.layer, bert.config.num_layers)
    given = open_examples(data, options.per, bert.tokenizer, columns)
    note(given.said)
    with progress_counter("texts") as progress:
        count, recipe = features_to_file(bert, given.examples, output, options, model=model, progress=progress)
    if json:
        print_json({"output": str(output), "rows": count, "dimensions": recipe.width, "layer": layer, "per": per})
    else:
        note(f"{count:,} vector{'s' * (count != 1)} of {recipe.width} dimensions written to {output}")
