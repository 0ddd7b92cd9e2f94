"""`bertkit convert`: a checkpoint from one format to another."""

from pathlib import Path
from typing import Annotated

import typer

from bertkit.cli.options import JsonOption
from bertkit.cli.output import console, print_json
from bertkit.cli.places import check_folder


def convert(
    source: Annotated[str, typer.Argument(help="Any checkpoint: folder, TF1 prefix, bundled model or hub name.")],
    target: Annotated[Path, typer.Argument(help="Folder to write.")],
    layout: Annotated[str, typer.Option("--to", help="safetensors, sharded, bin, tf1 or int8.")] = "safetensors",
    dtype: Annotated[str | None, typer.Option(help="float32, float16 or bfloat16; as stored by default.")] = None,
    lowercase: Annotated[
        bool | None, typer.Option("--uncased/--cased", help="Correct the stored casing; as stored by default.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a checkpoint in another format; nothing is rounded unless you ask for another dtype or int8.

    Example: bertkit convert uncased_L-12_H-768_A-12/bert_model.ckpt my-bert
    """
    from bertkit.inference.loading import convert

    check_folder(target)
    report = convert(source, target, layout=layout, dtype=dtype, lowercase=lowercase)
    if json:
        print_json({"target": str(target), "layout": layout, "report": report.to_json()})
        return
    for line in report.lines():
        console().print(line, soft_wrap=True)
    console().print(f"written to {target} ({layout})", soft_wrap=True)
