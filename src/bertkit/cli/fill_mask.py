"""`bertkit fill-mask`: the best words for each [MASK]."""

from dataclasses import asdict
from typing import Annotated

import typer

from bertkit.cli.options import DeviceOption, JsonOption, ModelOption
from bertkit.cli.output import console, print_json, table


def fill_mask(
    texts: Annotated[list[str], typer.Argument(help="Texts with one or several [MASK].")],
    model: ModelOption = "",
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="How many words for each [MASK].")] = 5,
    candidates: Annotated[str | None, typer.Option(help="Rank only these words: milk,bread,eggs")] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Fill in blanks: the most probable words for each [MASK], with their probabilities.

    Example: bertkit fill-mask -m small-en "The man went to the [MASK]."
    """
    from bertkit.inference.loading import load

    words = None if candidates is None else [word.strip() for word in candidates.split(",")]
    filled = load(model, device=device).fill_mask(texts, top_k=top_k, candidates=words)
    if json:
        print_json([{"text": t, "masks": [asdict(m) for m in masks]} for t, masks in zip(texts, filled, strict=True)])
        return
    for text, masks in zip(texts, filled, strict=True):
        rows = table("[MASK] at", "word", "probability", title=text)
        for mask in masks:
            for candidate in mask.candidates:
                rows.add_row(str(mask.start), candidate.token, f"{candidate.probability:.4f}")
            rows.add_section()
        console().print(rows)
