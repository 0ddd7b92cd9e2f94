"""Options that several commands share, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        envvar="BERTKIT_MODEL",
        help="Checkpoint: a folder, a TF1 prefix such as bert_model.ckpt, small-en or another bundled model, or a hub name.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables for people.")]
HtmlOption = Annotated[Path | None, typer.Option("--html", help="Also write one self-contained HTML page here.")]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ... or auto.")]
LongAsTrainedOption = Annotated[
    str | None, typer.Option("--long", help="Long texts: window, truncate or error; as in training unless said.")
]
StrideOption = Annotated[int | None, typer.Option("--stride", min=0, help="Tokens that windows of a long text share.")]
LongOption = Annotated[
    str, typer.Option("--long", help="Texts beyond the model's positions: error, truncate or window.")
]
