"""`bertkit info`: what a checkpoint is, in plain words."""

from dataclasses import asdict

from bertkit.cli.options import JsonOption, ModelOption
from bertkit.cli.output import console, print_json, table


def info(model: ModelOption = "", json: JsonOption = False) -> None:
    """What is in a checkpoint: sizes, heads, vocabulary, casing, precision, and what was missing.

    Example: bertkit info -m my-bert
    """
    from bertkit.inference.describe import describe

    described = describe(model)
    if json:
        print_json(asdict(described))
        return
    rows = table("", "", title=model)
    rows.show_header = False
    for name, value in described.rows():
        rows.add_row(name, value)
    console().print(rows)
    for line in described.report:
        console().print(line, soft_wrap=True)
