"""Which columns hold the text, the second text and the label: as named, else by their names, else by what is in them.

What enters: a table, its first rows, and the names that the user gave. What leaves: Columns, and a line that says them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertkit.errors import BertkitError
from bertkit.tasks.reading.headers import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, is_number, mean_words, plain_name
from bertkit.tasks.reading.tables import Row, Table

TEXT_WORDS = 2.5  # a column of texts has more words a cell
MOST_CLASSES = 50


@dataclass(frozen=True)
class Columns:
    """The columns that are read; there may be no second text, and no label."""

    text: str
    pair: str | None = None
    label: str | None = None

    def line(self, table: Table) -> str:
        """For people: text = column 'sentence', label = column 'label'."""
        named = {"text": self.text, "second text": self.pair, "label": self.label}
        no_header = table.kind in ("csv", "tsv") and table.header is None
        shown = [
            f"{what} = column {name if no_header else repr(name)}" for what, name in named.items() if name is not None
        ]
        return ", ".join(shown) + (" (there is no header)" if no_header else "")


def choose_columns(
    table: Table, sample: Sequence[Row], given: Columns | None = None, *, labelled: bool = True
) -> Columns:
    """The named columns, and good guesses for the others; without `labelled`, a label may be missing."""
    text, pair, label = (given.text, given.pair, given.label) if given else ("", None, None)
    for name in filter(None, (text, pair, label)):
        _check_name(table, name)
    cells = {name: [row.values.get(name) for row in sample] for name in table.columns}
    label = label or _by_name(table, LABEL_NAMES, (text, pair))
    if not text:
        text, pair = _guess_texts(table, cells, (label, pair), pair)
    if label is None and labelled:
        label = _guess_label({name: values for name, values in cells.items() if name not in (text, pair)})
        if label is None:
            raise BertkitError(
                f"{table.path}: no column looks like the label; name it (see --help), one of {_names(table)}"
            )
    return Columns(text, pair, label)


def _check_name(table: Table, name: str) -> None:
    if name not in table.columns:
        raise BertkitError(f"{table.path} has no column {name!r}; it has {_names(table)}")


def _names(table: Table) -> str:
    return ", ".join(map(repr, table.columns[:20])) + (", ..." if len(table.columns) > 20 else "")


def _by_name(table: Table, known: Sequence[str], taken: Sequence[str | None]) -> str | None:
    plain = {plain_name(name): name for name in reversed(table.columns) if name not in taken}
    return next((plain[name] for name in known if name in plain), None)


def _guess_texts(
    table: Table, cells: dict[str, list[Any]], taken: Sequence[str | None], pair: str | None
) -> tuple[str, str | None]:
    plain = {plain_name(name): name for name in reversed(table.columns) if name not in taken}
    for first, second in PAIR_NAMES:
        if pair is None and first in plain and second in plain:
            return plain[first], plain[second]
    if (known := _by_name(table, TEXT_NAMES, taken)) is not None:
        return known, pair
    free = {name: values for name, values in cells.items() if name not in taken}
    words = {name: mean_words(values) for name, values in free.items() if _are_texts(values)}
    if not words:
        raise BertkitError(f"{table.path}: no column looks like text; name it (see --help), one of {_names(table)}")
    best = sorted(words, key=lambda name: -words[name])[: 2 if pair is None else 1]
    long = [name for name in table.columns if name in best and words[name] >= TEXT_WORDS]
    return (long[0], long[1]) if len(long) == 2 else (best[0], pair)


def _are_texts(values: Sequence[Any]) -> bool:
    filled = all(isinstance(value, str) and value.strip() for value in values)
    return bool(values) and filled and not all(map(is_number, values))


def _guess_label(cells: dict[str, list[Any]]) -> str | None:
    """A column of decimals is a score; else the one with fewest different values, the last of equals."""
    shown = {name: ["" if value is None else str(value) for value in values] for name, values in cells.items()}
    filled = {name: values for name, values in shown.items() if values and all(value.strip() for value in values)}
    for name, values in filled.items():
        if all(map(is_number, values)) and any("." in value for value in values):
            return name
    counts = {name: len(set(values)) for name, values in filled.items()}
    classes = [name for name, count in counts.items() if 2 <= count <= MOST_CLASSES and count < len(filled[name])]
    return min(reversed(classes), key=lambda name: counts[name], default=None)
