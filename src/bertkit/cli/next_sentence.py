"""`bertkit next-sentence`: does B follow A?"""

from typing import Annotated

import typer

from bertkit.cli.options import DeviceOption, JsonOption, ModelOption
from bertkit.cli.output import console, print_json, table


def next_sentence(
    first: Annotated[str, typer.Argument(help="Sentence A.")],
    others: Annotated[list[str], typer.Argument(help="One or several sentences B, ranked.")],
    model: ModelOption = "",
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """How probable it is that each sentence B follows A.

    Example: bertkit next-sentence -m small-en "The man went to the store." "He bought milk." "Penguins are flightless."
    """
    from bertkit.inference.loading import load

    scores = load(model, device=device).next_sentences([(first, other) for other in others]).tolist()
    ranked = sorted(zip(others, scores, strict=True), key=lambda row: -row[1])
    if json:
        print_json({"a": first, "next": [{"b": b, "probability": p} for b, p in ranked]})
        return
    rows = table("B", "P(IsNext)", title=f"After: {first}")
    for b, probability in ranked:
        rows.add_row(b, f"{probability:.4f}")
    console().print(rows)
