"""Strangers: for pairs that are not next, a B from another document that nothing but its content gives away.

The document is drawn by its number of sentences, so that books, say, are as frequent among strangers as among true
Bs, but none with more than its capped weight. B begins anywhere in it and ends as the true B would have: where the
pair reaches its target; or, where that one ended with its document, after as many sentences.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.plan_layout import Layout
from bertkit.corpus.random import draw_below

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
# The `number`-th random number of each of the `which` examples.
Draw = Callable[[Integers, int], NDArray[np.float64]]
NUM_ATTEMPTS = 8  # documents tried for one that is long enough


@dataclass(frozen=True)
class Needs:
    """What a stranger has to be like: so many tokens at least, or where the document had ended, so many units."""

    num_tokens: Integers
    num_units: Integers
    is_counted: Booleans

    def met_by(self, layout: Layout, rows: Integers, documents: Integers) -> Booleans:
        """Whether these documents are large enough for these rows."""
        low, high = layout.document_offsets[documents], layout.document_offsets[documents + 1]
        num_tokens = layout.unit_offsets[high] - layout.unit_offsets[low]
        return np.where(
            self.is_counted[rows], high - low >= self.num_units[rows], num_tokens >= self.num_tokens[rows]
        ).astype(np.bool_)


def draw_strangers(
    layout: Layout, *, documents: Integers, runs: tuple[Integers, Integers, Integers], targets: Integers, draw: Draw
) -> tuple[Integers, Integers]:
    """First unit and end of a stranger for each run (first, split, end) of these documents."""
    starts, splits, ends = (layout.unit_offsets[units] for units in runs)
    needs = Needs(
        num_tokens=np.maximum(targets - (splits - starts), 1),
        num_units=np.maximum(runs[2] - runs[1], 1),  # one, where A was the last sentence
        is_counted=ends - starts < targets,
    )
    others = np.zeros_like(documents)
    rows = np.arange(len(documents))
    for attempt in range(NUM_ATTEMPTS):
        others[rows] = _other_documents(layout, documents[rows], draw(rows, 1 + attempt))
        rows = rows[~needs.met_by(layout, rows, others[rows])]
        if not len(rows):
            break
    return _gather(layout, others, needs, draw(np.arange(len(documents)), 0))


def _other_documents(layout: Layout, documents: Integers, uniform: NDArray[np.float64]) -> Integers:
    """Documents drawn by weight, each another than the one given."""
    offsets = layout.weight_offsets
    own, weights = offsets[documents], offsets[documents + 1] - offsets[documents]
    drawn = draw_below(uniform, offsets[-1] - weights)
    drawn += np.where(drawn >= own, weights, 0)
    return np.searchsorted(offsets, drawn, side="right") - 1


def _gather(
    layout: Layout, documents: Integers, needs: Needs, uniform: NDArray[np.float64]
) -> tuple[Integers, Integers]:
    """From any unit until the need is met; a start too near the end moves back until the rest of the document does."""
    offsets = layout.unit_offsets
    low, high = layout.document_offsets[documents], layout.document_offsets[documents + 1]
    last_by_tokens = np.searchsorted(offsets, offsets[high] - needs.num_tokens, side="right") - 1
    last = np.where(needs.is_counted, high - needs.num_units, last_by_tokens)
    firsts = low + draw_below(uniform, np.maximum(last - low, 0) + 1)
    by_tokens = np.searchsorted(offsets, offsets[firsts] + needs.num_tokens)
    return firsts, np.minimum(np.where(needs.is_counted, firsts + needs.num_units, by_tokens), high)
