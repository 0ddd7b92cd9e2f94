"""An epoch's plan: which tokens form which example, from the lengths of sentences alone.

In: the layout of a store and (seed, epoch). Out: about 20 bytes an example: where A and B lie, and the label.
Documents advance side by side, one example a step, so the work is done by numpy whatever their number. A plan of a
range of stretches is a slice of the whole plan, so ranges can be planned anywhere.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.pairs import PairConfig, Side, truncate_pair
from bertkit.corpus.plan_layout import Layout
from bertkit.corpus.plan_strangers import draw_strangers
from bertkit.corpus.random import draw_below, draw_uniform, make_keys

Integers = NDArray[np.int64]
Columns = TypeVar("Columns")
PLAN_KEY = 1  # keeps the random numbers of plans apart from those of order and masks
DRAWS_PER_EXAMPLE = 32  # of a stretch's random numbers, a block for each example; strangers take the upper half


@dataclass(frozen=True)
class Plan:
    """E examples in the order of the corpus; starts count through the tokens of all shards."""

    a_starts: Integers  # [E]
    b_starts: Integers  # [E]
    a_lengths: NDArray[np.uint16]  # [E]
    b_lengths: NDArray[np.uint16]  # [E] 0 without NSP
    is_next: NDArray[np.bool_]  # [E]
    is_short: NDArray[np.bool_]  # [E] drawn short on purpose

    def __len__(self) -> int:
        return len(self.a_starts)

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))


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
    is_next: NDArray[np.bool_]
    is_short: NDArray[np.bool_]


def plan_epoch(
    layout: Layout, config: PairConfig, *, seed: int, epoch: int, executor: Executor | None = None, num_ranges: int = 1
) -> Plan:
    """All examples of an epoch; with an executor, ranges of documents are planned side by side, to the same result."""
    bounds = np.searchsorted(
        layout.stretch_offsets, np.linspace(0, layout.stretch_offsets[-1], num_ranges + 1)
    ).tolist()
    plan = partial(plan_range, layout, config, seed, epoch)
    ranges = executor.map(plan, bounds[:-1], bounds[1:]) if executor else map(plan, bounds[:-1], bounds[1:])
    return _joined(Plan, list(ranges))


def plan_range(layout: Layout, config: PairConfig, seed: int, epoch: int, first: int, end: int) -> Plan:
    """The examples of stretches first ... end."""
    stretches = np.arange(first, end)
    runs = _draw_runs(layout, config, make_keys(PLAN_KEY, seed, epoch, stretches), stretches)
    return _pair_plan(layout, config, runs) if config.nsp else _single_plan(layout, runs)


def _draw_runs(layout: Layout, config: PairConfig, keys: NDArray[np.uint64], stretches: Integers) -> Runs:
    """Advance all stretches by one example a step, until every one is used up."""
    starts, stops = layout.stretch_offsets[stretches], layout.stretch_offsets[stretches + 1]
    can_pair = stops - starts > 1
    steps, counter = [], 0
    while len(starts):
        uniform = draw_uniform(keys, counter + np.arange(4)[:, None])
        step = (_pair_step if config.nsp else _single_step)(layout, config, uniform, starts, stops, can_pair)
        is_short, targets, firsts, splits, ends, is_next = step
        counters = np.full(len(starts), counter, dtype=np.int64)
        steps.append(Runs(keys, counters, stretches, targets, firsts, splits, ends, is_next, is_short))
        starts = np.where(is_next, ends, splits)  # what would have been B goes back
        active = starts < stops
        starts, stops, can_pair, keys, stretches = (
            array[active] for array in (starts, stops, can_pair, keys, stretches)
        )
        counter += DRAWS_PER_EXAMPLE
    runs = _joined(Runs, steps)
    return _taken(runs, np.argsort(runs.stretches, kind="stable"))


def _targets(config: PairConfig, uniform: NDArray[np.float64]) -> tuple[NDArray[np.bool_], Integers]:
    """Mostly the whole room; a short share is of any length."""
    is_short = uniform[0] < config.short_share
    return is_short, np.where(is_short, 2 + draw_below(uniform[1], config.room - 1), config.room)


def _pair_step(
    layout: Layout,
    config: PairConfig,
    uniform: NDArray[np.float64],
    starts: Integers,
    stops: Integers,
    can_pair: NDArray[np.bool_],
) -> tuple[Any, ...]:
    """A run that reaches its target, two units at least, or the end; cut in two at any place between units."""
    is_short, targets = _targets(config, uniform)
    ends = np.searchsorted(layout.unit_offsets, layout.unit_offsets[starts] + targets)
    ends = np.minimum(np.maximum(ends, starts + 2), stops)
    is_next = can_pair & (uniform[2] >= config.random_next_share)
    firsts = starts - (is_next & (ends - starts == 1))  # the last sentence alone: it follows the one before it
    splits = firsts + 1 + draw_below(uniform[3], np.maximum(ends - firsts - 1, 1))
    return is_short, targets, firsts, splits, ends, is_next


def _single_step(
    layout: Layout,
    config: PairConfig,
    uniform: NDArray[np.float64],
    starts: Integers,
    stops: Integers,
    can_pair: NDArray[np.bool_],
) -> tuple[Any, ...]:
    """As many whole units as the target holds, one at least."""
    is_short, targets = _targets(config, uniform)
    ends = np.searchsorted(layout.unit_offsets, layout.unit_offsets[starts] + targets, side="right") - 1
    ends = np.minimum(np.maximum(ends, starts + 1), stops)
    return is_short, targets, starts, ends, ends, np.zeros(len(starts), dtype=np.bool_)


def _pair_plan(layout: Layout, config: PairConfig, runs: Runs) -> Plan:
    b_firsts, b_ends = runs.splits.copy(), runs.ends.copy()
    rows = np.flatnonzero(~runs.is_next)
    b_firsts[rows], b_ends[rows] = draw_strangers(
        layout,
        documents=layout.stretch_document[runs.stretches[rows]],
        runs=(runs.firsts[rows], runs.splits[rows], runs.ends[rows]),
        targets=runs.targets[rows],
        draw=lambda which, number: draw_uniform(
            runs.keys[rows[which]], runs.counters[rows[which]] + DRAWS_PER_EXAMPLE // 2 + number
        ),
    )
    sides = _side(layout, runs.firsts, runs.splits), _side(layout, b_firsts, b_ends)
    uniform = draw_uniform(runs.keys, runs.counters + np.array([[4], [5]]))
    a_starts, a_lengths, b_starts, b_lengths = truncate_pair(*sides, config.room, uniform)
    lengths = a_lengths.astype(np.uint16), b_lengths.astype(np.uint16)
    return Plan(a_starts, b_starts, *lengths, runs.is_next, runs.is_short)


def _single_plan(layout: Layout, runs: Runs) -> Plan:
    starts = layout.unit_offsets[runs.firsts]
    lengths = (layout.unit_offsets[runs.ends] - starts).astype(np.uint16)
    return Plan(starts, starts + lengths, lengths, np.zeros_like(lengths), runs.is_next, runs.is_short)


def _side(layout: Layout, firsts: Integers, ends: Integers) -> Side:
    offsets = layout.unit_offsets
    starts, stops = offsets[firsts], offsets[ends]
    return Side(starts, stops - starts, offsets[firsts + 1] - starts, stops - offsets[ends - 1])


def _joined(kind: type[Columns], parts: Sequence[Columns]) -> Columns:
    """Dataclasses of arrays, laid end to end."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _taken(runs: Runs, rows: Integers) -> Runs:
    return Runs(*(getattr(runs, field.name)[rows] for field in fields(Runs)))
