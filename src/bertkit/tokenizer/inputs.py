"""What callers hand in: texts and pairs, laid out in one flat list for the library, and checked when it refuses.

What enters: strings and pairs of strings. What leaves: a flat list and which entries are pairs; or a clear error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bertkit.errors import BertkitError

Text = str | tuple[str, str | None]

SURROGATE = re.compile("[\ud800-\udfff]")
NUM_SHOWN = 40


def flatten(texts: Sequence[Text]) -> tuple[list[str], list[bool]]:
    """All strings in one list, and for each text whether it took two of them."""
    flat: list[str] = []
    paired: list[bool] = []
    for index, text in enumerate(texts):
        if isinstance(text, str):
            flat.append(text)
            paired.append(False)
            continue
        if not isinstance(text, tuple | list) or len(text) != 2:
            raise BertkitError(f"text {index + 1} of {len(texts)} is {type(text).__name__}, not a string or a pair")
        first, second = text
        flat.append(first)
        if second is not None:
            flat.append(second)
        paired.append(second is not None)
    return flat, paired


def name_text(text: Text, index: int, num_texts: int) -> str:
    """How to tell the user which text is meant."""
    start = text if isinstance(text, str) else text[0]
    shown = start if len(start) <= NUM_SHOWN else start[:NUM_SHOWN] + "..."
    which = "the text" if num_texts == 1 else f"text {index + 1} of {num_texts}"
    return f"{which} ({shown!r})"


def explain_refusal(strings: Sequence[object]) -> BertkitError | None:
    """Why the library cannot take these strings; None when there is nothing wrong with them."""
    for string in strings:
        if not isinstance(string, str):
            return BertkitError(f"a text is {type(string).__name__}, not a string: {string!r:.60}")
        if found := SURROGATE.search(string):
            return BertkitError(
                f"a text has half a surrogate pair, {found[0]!a} at character {found.start()} of {string[:NUM_SHOWN]!a}, "
                "which is no valid Unicode; decode the file with errors='replace'"
            )
    return None
