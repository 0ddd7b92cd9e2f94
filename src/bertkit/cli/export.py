"""`bertkit export`: ONNX files of a checkpoint, float32 and eight-bit."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from bertkit.cli.finetune import ColumnsOption
from bertkit.cli.options import JsonOption, ModelOption
from bertkit.cli.output import console, print_json
from bertkit.cli.places import check_folder
from bertkit.errors import BertkitError


def export(
    model: ModelOption = "",
    target: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write; the model's own where it is a folder.")
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx/--no-onnx", help="The format; there is no other yet.")] = True,
    int8: Annotated[
        bool, typer.Option("--int8", help="Also eight-bit: about 4x as fast, a little less exact.")
    ] = False,
    vnni: Annotated[
        bool | None,
        typer.Option(
            "--vnni/--no-vnni",
            help="The eight-bit file for CPUs with VNNI or AMX, or for any; by default as this one is.",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(help="hidden, sentence, pooler, mlm, nsp, classifier, tagger or span; by default what it is for."),
    ] = None,
    evaluate: Annotated[
        Path | None, typer.Option("--evaluate", help="A file of the model's task: scores of float32 beside int8.")
    ] = None,
    columns: ColumnsOption = None,
    json: JsonOption = False,
) -> None:
    """Write a checkpoint as ONNX, for ONNX Runtime and for bertkit's own fast engine on CPUs.

    The folder is then used with that engine by embed, predict and serve, and loads in plain ONNX Runtime.

    Example: bertkit export -m reviews --int8 --evaluate dev.csv
    """
    from bertkit.inference.engines.export import export_onnx
    from bertkit.inference.loading import load
    from bertkit.tasks.registry import parse_columns

    if not onnx:
        raise BertkitError("there is no other format than --onnx; `bertkit convert` writes checkpoints")
    if columns and evaluate is None:
        raise BertkitError("--column is about the file of --evaluate; give that file, or leave --column out")
    if target is not None:
        check_folder(target)
    roles = parse_columns(columns or ())
    bert = load(model, device="cpu", engine="torch")
    folder = target or Path(model)
    if target is None and not folder.is_dir():
        raise BertkitError(f"{model} is no folder; name one to write with --output")
    with _left_as_it_was(folder):
        report = export_onnx(bert, folder, output=head, int8=int8, vnni=vnni, evaluate=evaluate, columns=roles)
    if target is not None:
        bert.save(target)
    if json:
        print_json(report.to_json())
        return
    for line in report.lines():
        console().print(line, soft_wrap=True)


@contextmanager
def _left_as_it_was(folder: Path) -> Iterator[None]:
    """A refused export leaves no empty folder behind."""
    made = [place for place in (folder / "onnx", folder, *folder.parents) if not place.exists()]
    try:
        yield
    except BertkitError:
        with suppress(OSError):  # one that is not empty is not removed
            for place in made:
                place.rmdir()
        raise
