"""Cells -> labels: one class, several classes, or a number; and which of the three a column holds."""

import json
import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Literal

from bertkit.tasks.reading.examples import Label
from bertkit.tasks.reading.headers import is_number
from bertkit.tasks.reading.lines import check_unicode
from bertkit.tasks.reading.problems import BadRowError

ProblemType = Literal["single_label", "multi_label", "regression"]
SEPARATOR = ";"  # between the classes of one cell
MANY_NUMBERS = 20  # more different numbers than this are no classes


def is_gap(value: Any) -> bool:
    """Whether a cell holds nothing: null, or the NaN that other tools make of it in a column of numbers."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def parse_label(value: Any, problem: ProblemType, known: Collection[str] | None = None) -> Label:
    """The label of a cell; what is none, or is not known, is a bad row."""
    if problem == "regression":
        return _number(value)
    if problem == "multi_label":
        return tuple(dict.fromkeys(_known(name, known) for name in _several(value)))
    return _known(_one(value), known)


def _number(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise BadRowError(f"the label {_shown(value)} is not a number; correct it, or say that the labels are classes")
    return number


def _one(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if is_gap(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # what other tools make of a column of integers with a gap
    if isinstance(value, str | int | float):
        return check_unicode(str(value).strip())
    raise BadRowError(f"the label {_shown(value)} is not one class; say multi_label if it should be several")


def _several(value: Any) -> list[str]:
    if isinstance(value, str) and value.strip().startswith("["):
        value = _json_list(value)
    if isinstance(value, list | tuple):
        return [_one(name) for name in value]
    return [name for name in map(str.strip, _one(value).split(SEPARATOR)) if name]  # an empty cell has no class at all


def _json_list(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError:
        raise BadRowError(f'the label {_shown(cell)} is not a JSON list; write ["a", "b"] or a{SEPARATOR}b') from None


def _known(name: str, known: Collection[str] | None) -> str:
    if not name:
        raise BadRowError("the label is empty; fill it in, or take the row out")
    if known is not None and name not in known:
        some = ", ".join(sorted(known)[:10])
        raise BadRowError(f"the label {_shown(name)} is not known; the labels are {some}{', ...' * (len(known) > 10)}")
    return name


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def guess_problem(values: Sequence[Any]) -> ProblemType:
    """Which of the three a column looks like, by its first cells."""
    cells = ["" if is_gap(value) else value for value in values]
    if any(
        isinstance(cell, list | tuple) or (isinstance(cell, str) and cell.strip().startswith("[")) for cell in cells
    ):
        return "multi_label"
    texts = [str(cell) for cell in cells if str(cell).strip()]
    if texts and all(map(is_number, texts)):
        fractions = any(not float(text).is_integer() for text in texts)
        return "regression" if fractions or len(set(map(float, texts))) > MANY_NUMBERS else "single_label"
    return "multi_label" if _separated(texts) else "single_label"


def _separated(texts: Sequence[str]) -> bool:
    """Whether cells hold several classes: parts between separators that come again in other cells."""
    parts = [{part.strip() for part in text.split(SEPARATOR)} for text in texts]
    counts = Counter(part for cell in parts for part in cell)
    return any(len(cell) > 1 and all(part and counts[part] > 1 for part in cell) for cell in parts)
