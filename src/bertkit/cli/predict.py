"""`bertkit predict`: a label and a confidence for every row of a file."""

from pathlib import Path
from typing import Annotated

import typer

from bertkit.cli.finetune import ColumnsOption
from bertkit.cli.options import DeviceOption, JsonOption, ModelOption
from bertkit.cli.output import note, print_json, progress_counter


def predict(
    file: Annotated[Path, typer.Argument(help="Texts: csv, tsv, jsonl or parquet (also .gz, .xz, .zst).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the same rows go, with their labels.")],
    model: ModelOption = "",
    long: Annotated[str | None, typer.Option(help="window, truncate or error; as in training unless said.")] = None,
    columns: ColumnsOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Predict every row of a file: all its columns are kept, label and confidence are added.

    Example: bertkit predict -m reviews new.csv -o labelled.csv
    """
    from bertkit.inference.classification import predict_file
    from bertkit.inference.loading import load
    from bertkit.tasks.registry import parse_columns

    bert = load(model, device=device)
    options = parse_columns(columns or ())
    with progress_counter("rows") as progress:
        done = predict_file(
            bert.model,
            bert.tokenizer,
            file,
            output,
            stored=bert.stored,
            long=long,
            columns=options,
            progress=progress,
        )
    if json:
        print_json({"output": done.output, "rows": done.num_rows, "long": done.num_long})
        return
    for line in done.lines:
        note(line)
    note(f"{done.num_rows:,} rows written to {done.output}")
