"""The words page: fixed and contextual vectors of word uses side by side, as cosine tables and as maps.

In: the plain form of a WordComparison. Out: HTML.
"""

from collections.abc import Mapping
from typing import Any

from bertkit.pages.frame import fill, frame


def words_page(comparison: Mapping[str, Any], *, model: str, untrained: bool = False) -> str:
    """One page of tables and maps; `comparison` is WordComparison.to_json()."""
    warning = "This model is untrained: its vectors are random, and so is what is near what." if untrained else ""
    return frame("One word, many meanings", f"Model: {model}.", fill("words"), comparison, warning=warning)
