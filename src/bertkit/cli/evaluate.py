"""`bertkit evaluate`: a fine-tuned model's scores on a file."""

from pathlib import Path
from typing import Annotated

import typer

from bertkit.cli.finetune import ColumnsOption
from bertkit.cli.options import DeviceOption, JsonOption, ModelOption
from bertkit.cli.output import console, note, print_json, table


def evaluate(
    data: Annotated[Path, typer.Option(help="Examples with their truth, of the task that the model was trained for.")],
    model: ModelOption = "",
    long: Annotated[str | None, typer.Option(help="window, truncate or error; as in training unless said.")] = None,
    columns: ColumnsOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Score a fine-tuned model on a file. Labels that the model does not know are refused.

    Example: bertkit evaluate -m reviews --data test.csv
    """
    from bertkit.inference.loading import load
    from bertkit.tasks.registry import parse_columns

    found = load(model, device=device).evaluate(data, long=long, columns=parse_columns(columns or ()))
    if json:
        print_json({"task": found.task, "examples": found.num_examples, "scores": found.scores})
        return
    for line in found.lines:
        note(line)
    shown = table("score", str(data))
    for name, value in found.scores.items():
        shown.add_row(name, f"{value:.4f}")
    console().print(shown)
