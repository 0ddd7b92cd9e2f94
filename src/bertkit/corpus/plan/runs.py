"""Runs of sentences, drawn from every stretch of a corpus until it is used up; a plan cuts examples out of them.

Stretches advance side by side, one example a step, so the work is done by numpy whatever their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.pairs import PairConfig
from bertkit.corpus.plan.layout import Layout
from bertkit.corpus.random import draw_below, draw_uniform

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Columns = TypeVar("Columns")
DRAWS_PER_EXAMPLE = 32  # of a stretch's random numbers, a block for each example; strangers take the upper half


@dataclass(frozen=True)
class Runs:
    """Runs of units before anything is cut: A is first ... split, a true B is split ... end."""

    keys: NDArray[np.uint64]
    counters: Integers  # where the example's block of random numbers begins
    stretches: Integers
    targets: Integers
    firsts: Integers
    splits: Integers
    ends: Integers
    is_next: Booleans
    is_whole: Booleans  # both sides are used: B is next, or the two are swapped
    is_short: Booleans


@dataclass(frozen=True)
class Front:
    """Stretches that are not used up, and how far each one is."""

    keys: NDArray[np.uint64]
    counters: Integers
    stretches: Integers
    starts: Integers  # the unit that is next
    stops: Integers
    can_pair: Booleans  # whether the stretch has two units

    def after(self, runs: Runs) -> "Front":
        """What is left after these runs; what would have been B goes back where a stranger takes its place."""
        starts = np.where(runs.is_whole, runs.ends, runs.splits)
        moved = replace(self, starts=starts, counters=self.counters + DRAWS_PER_EXAMPLE)
        return taken(moved, starts < self.stops)


def draw_runs(layout: Layout, config: PairConfig, keys: NDArray[np.uint64], stretches: Integers) -> Runs:
    """Advance all stretches by one example a step, until every one is used up; in the order of the corpus."""
    starts, stops = layout.stretch_offsets[stretches], layout.stretch_offsets[stretches + 1]
    front = Front(keys, np.zeros(len(stretches), dtype=np.int64), stretches, starts, stops, stops - starts > 1)
    steps = []
    while len(front.starts):
        steps.append(_draw_pairs(layout, config, front) if config.nsp else _draw_singles(layout, config, front))
        front = front.after(steps[-1])
    runs = joined(Runs, steps)
    return taken(runs, np.argsort(runs.stretches, kind="stable"))


def _draw_pairs(layout: Layout, config: PairConfig, front: Front) -> Runs:
    """A run that reaches its target, two units at least, or the end; cut in two at any place between units."""
    uniform = _uniform(front)
    is_short, targets = _targets(config, uniform)
    starts = front.starts
    ends = np.searchsorted(layout.unit_offsets, layout.unit_offsets[starts] + targets)
    ends = np.minimum(np.maximum(ends, starts + 2), front.stops)
    is_next = front.can_pair & (uniform[2] >= config.random_next_share)
    is_whole = front.can_pair if config.negatives == "swapped" else is_next
    firsts = starts - (is_whole & (ends - starts == 1))  # the last sentence alone: it follows the one before it
    splits = firsts + 1 + draw_below(uniform[3], np.maximum(ends - firsts - 1, 1))
    return _runs(front, targets, firsts, splits, ends, is_next=is_next, is_whole=is_whole, is_short=is_short)


def _draw_singles(layout: Layout, config: PairConfig, front: Front) -> Runs:
    """As many whole units as the target holds, one at least."""
    is_short, targets = _targets(config, _uniform(front))
    ends = np.searchsorted(layout.unit_offsets, layout.unit_offsets[front.starts] + targets, side="right") - 1
    ends = np.minimum(np.maximum(ends, front.starts + 1), front.stops)
    nowhere = np.zeros(len(front.starts), dtype=np.bool_)
    return _runs(front, targets, front.starts, ends, ends, is_next=nowhere, is_whole=nowhere, is_short=is_short)


def _uniform(front: Front) -> NDArray[np.float64]:
    """The first four random numbers of each stretch's next example."""
    return draw_uniform(front.keys, front.counters + np.arange(4)[:, None])


def _targets(config: PairConfig, uniform: NDArray[np.float64]) -> tuple[Booleans, Integers]:
    """Mostly the whole room; a short share is of any length."""
    is_short = uniform[0] < config.short_share
    return is_short, np.where(is_short, 2 + draw_below(uniform[1], config.room - 1), config.room)


def _runs(
    front: Front,
    targets: Integers,
    firsts: Integers,
    splits: Integers,
    ends: Integers,
    *,
    is_next: Booleans,
    is_whole: Booleans,
    is_short: Booleans,
) -> Runs:
    flags = is_next, is_whole, is_short
    return Runs(front.keys, front.counters, front.stretches, targets, firsts, splits, ends, *flags)


def joined(kind: type[Columns], parts: Sequence[Columns]) -> Columns:
    """Dataclasses of arrays, laid end to end."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def taken(columns: Columns, rows: NDArray[Any]) -> Columns:
    """These rows of a dataclass of arrays."""
    names = [field.name for field in fields(columns)]  # type: ignore[arg-type]
    return type(columns)(*(getattr(columns, name)[rows] for name in names))
