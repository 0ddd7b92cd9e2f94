"""Strangers: for pairs that are not next, a B from another document that nothing but its content gives away.

The document is drawn by its number of sentences, so that books, say, are as frequent among strangers as among true
Bs, but none with more than its capped weight. B begins anywhere in it and ends as the true B would have: where the
pair reaches its target; or, where that one ended with its document, after as many sentences.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.plan.layout import Layout
from bertkit.corpus.plan.runs import DRAWS_PER_EXAMPLE, Runs
from bertkit.corpus.random import draw_below, draw_uniform

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
NUM_ATTEMPTS = 8  # documents tried for one that is long enough


@dataclass(frozen=True)
class Needs:
    """What a stranger has to be like: so many tokens at least, or where the document had ended, so many units."""

    num_tokens: Integers
    num_units: Integers
    is_counted: Booleans

    @classmethod
    def of(cls, layout: Layout, runs: Runs) -> "Needs":
        """What each run's own B would have been like."""
        starts, splits, ends = (layout.unit_offsets[units] for units in (runs.firsts, runs.splits, runs.ends))
        return cls(
            num_tokens=np.maximum(runs.targets - (splits - starts), 1),
            num_units=np.maximum(runs.ends - runs.splits, 1),  # one, where A was the last sentence
            is_counted=ends - starts < runs.targets,
        )

    def met_by(self, layout: Layout, rows: Integers, documents: Integers) -> Booleans:
        """Whether these documents are large enough for these rows."""
        low, high = layout.document_offsets[documents], layout.document_offsets[documents + 1]
        num_tokens = layout.unit_offsets[high] - layout.unit_offsets[low]
        return np.where(
            self.is_counted[rows], high - low >= self.num_units[rows], num_tokens >= self.num_tokens[rows]
        ).astype(np.bool_)


def draw_strangers(layout: Layout, runs: Runs) -> tuple[Integers, Integers]:
    """First unit and end of a stranger for each run."""
    documents, rows = layout.stretch_document[runs.stretches], np.arange(len(runs.stretches))
    needs = Needs.of(layout, runs)
    others = np.zeros_like(documents)
    start_draw = _draw(runs, rows, 0)
    for attempt in range(NUM_ATTEMPTS):
        others[rows] = _other_documents(layout, documents[rows], _draw(runs, rows, 1 + attempt))
        rows = rows[~needs.met_by(layout, rows, others[rows])]
        if not len(rows):
            break
    return _gather(layout, others, needs, start_draw)


def _draw(runs: Runs, rows: Integers, number: int) -> NDArray[np.float64]:
    """The `number`-th of each run's random numbers that strangers have."""
    return draw_uniform(runs.keys[rows], runs.counters[rows] + DRAWS_PER_EXAMPLE // 2 + number)


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
