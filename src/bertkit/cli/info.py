"""`bertkit info`: what a checkpoint is, in plain words; without one, the models that come with bertkit."""

from dataclasses import asdict

from bertkit.cli.options import JsonOption, ModelOption
from bertkit.cli.output import console, print_json, table


def info(model: ModelOption = "", json: JsonOption = False) -> None:
    """What is in a checkpoint: sizes, heads, vocabulary, casing, precision, what was missing; or which models come along.

    Example: bertkit info -m small-en
    """
    if not model:
        list_bundled(json)
        return
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


def list_bundled(json: bool) -> None:
    """The models that come with bertkit, and whether they are here."""
    from bertkit.bundled import MODELS, folder_of, is_here, size_of

    found = [
        {"name": name, "use": use, "folder": str(folder_of(name)), "bytes": size_of(name) if is_here(name) else None}
        for name, use in MODELS.items()
    ]
    if json:
        print_json(found)
        return
    rows = table("name", "MB", "for", title="Models that come with bertkit; for another, name it with -m")
    for name, use in MODELS.items():
        rows.add_row(name, f"{size_of(name) / 1e6:.1f}" if is_here(name) else "not here", use)
    console().print(rows)
