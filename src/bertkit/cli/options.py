"""Options that several commands share, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from bertkit.errors import BertkitError

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
MOST_SEED = 2**63 - 1  # what torch takes
MOST_AT_ONCE = 1024  # processes or threads: more is a slip, and a machine that is asked to start them stands still


def check_stride(long: str | None, stride: int | None) -> None:
    """Refuse a stride where there are no windows."""
    if stride is not None and long not in (None, "window"):
        raise BertkitError(f"--stride is for windows; leave it out, or give --long window in place of {long}")
