"""The explain page: one input through embeddings, masking, both predictions and the loss, as in figure 2 of the paper.

In: the plain form of an Explanation. Out: HTML. Embedding values are rounded for size, and the page says so.
"""

from collections.abc import Mapping
from typing import Any

from bertkit.pages.frame import fill, frame

DECIMALS = 4


def explain_page(explanation: Mapping[str, Any], *, model: str, untrained: bool = False) -> str:
    """One page that a student keeps open; `explanation` is Explanation.to_json()."""
    rounded = {name: _rounded(rows) for name, rows in explanation["embeddings"].items()}
    data = {**explanation, "embeddings": rounded, "decimals": DECIMALS}
    warning = untrained_warning(explanation["vocab_size"]) if untrained else ""
    return frame("How BERT reads this", f"Model: {model}.", fill("explain"), data, warning=warning)


def untrained_warning(vocab_size: int) -> str:
    """What must be said of a model with random weights."""
    return (
        "This model is untrained: its weights are random numbers. Its probabilities are near uniform, about "
        f"1 in {vocab_size:,} for a token and 1 in 2 for the pair; they show how BERT works, not what it knows."
    )


def _rounded(rows: list[list[float]]) -> list[list[float]]:
    return [[round(value, DECIMALS) for value in row] for row in rows]
