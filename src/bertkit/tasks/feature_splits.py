"""A table of features as two, one of them held out, by the rule that splits files of examples. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.tasks.features import FeatureTable, make_room
from bertkit.tasks.reading.examples import TagExample, TextExample
from bertkit.tasks.reading.splits import split_examples

COPIED_ROWS = 4096  # at a time, so that a table that is mapped from a file stays there


@dataclass(frozen=True)
class SplitTable:
    """Features to train on, those to score by, and a line that says how they were drawn."""

    train: FeatureTable
    dev: FeatureTable
    said: str


def split_table(table: FeatureTable, *, seed: int = 0) -> SplitTable:
    """Hold out a tenth of the texts, of every class; words of one text, and equal texts, stay together."""
    groups = table.groups()
    split: Any = split_examples(_examples(table, groups), seed=seed)
    train, dev = (_take(table, [groups[example.line] for example in part]) for part in (split.train, split.dev))
    return SplitTable(train, dev, split.said)


def _examples(table: FeatureTable, groups: Sequence[tuple[int, int]]) -> list[Any]:
    """The texts, each with its number in place of a line."""
    labels = table.known_labels("the training features")
    if table.recipe.per == "word":
        return [TagExample(tuple(table.texts[first:end]), line=number) for number, (first, end) in enumerate(groups)]
    return [TextExample(table.texts[first], label=labels[first], line=n) for n, (first, _) in enumerate(groups)]


def _take(table: FeatureTable, groups: Sequence[tuple[int, int]]) -> FeatureTable:
    rows = np.concatenate([np.arange(first, end) for first, end in groups])
    vectors, kept = make_room(len(rows), table.recipe.width, table.vectors.dtype)
    _copy(table.vectors, rows, vectors)
    labels, texts = ([column[row] for row in rows] for column in (table.labels, table.texts))
    return FeatureTable(table.recipe, vectors, labels, texts, table.text_ids[rows], kept)


def _copy(source: NDArray[Any], rows: NDArray[np.int64], target: NDArray[Any]) -> None:
    for start in range(0, len(rows), COPIED_ROWS):
        chosen = rows[start : start + COPIED_ROWS]
        target[start : start + len(chosen)] = source[chosen]
