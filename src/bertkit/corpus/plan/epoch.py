"""An epoch's plan: which tokens form which example, from the lengths of sentences alone.

In: the layout of a store and (seed, epoch). Out: about 20 bytes an example: where A and B lie, and the label.
Each stretch has random numbers of its own, so what it gives depends on no other but for its strangers.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.pairs import PairConfig, Side, truncate_pair
from bertkit.corpus.plan.layout import Layout
from bertkit.corpus.plan.passes import chosen_stretches
from bertkit.corpus.plan.runs import Runs, draw_runs, taken
from bertkit.corpus.plan.strangers import draw_strangers
from bertkit.corpus.random import draw_uniform, make_keys

Integers = NDArray[np.int64]
PLAN_KEY = 1  # keeps the random numbers of plans apart from those of order and masks


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


def plan_epoch(layout: Layout, config: PairConfig, *, seed: int, epoch: int) -> Plan:
    """All examples of an epoch."""
    if (layout.passes == 1.0).all():
        stretches = np.arange(len(layout.stretch_document))
        keys = make_keys(PLAN_KEY, seed, epoch, stretches)
    else:
        stretches, passes = chosen_stretches(layout, seed=seed, epoch=epoch)
        keys = make_keys(PLAN_KEY, seed, epoch, stretches, passes)
    runs = draw_runs(layout, config, keys, stretches)
    return _pair_plan(layout, config, runs) if config.nsp else _single_plan(layout, runs)


def _pair_plan(layout: Layout, config: PairConfig, runs: Runs) -> Plan:
    a_firsts, a_ends, b_firsts, b_ends = runs.firsts.copy(), runs.splits.copy(), runs.splits.copy(), runs.ends.copy()
    rows = np.flatnonzero(~runs.is_whole)
    b_firsts[rows], b_ends[rows] = draw_strangers(layout, taken(runs, rows))
    rows = np.flatnonzero(runs.is_whole & ~runs.is_next)  # swapped
    a_firsts[rows], a_ends[rows], b_firsts[rows], b_ends[rows] = (
        b_firsts[rows],
        b_ends[rows],
        a_firsts[rows],
        a_ends[rows],
    )
    sides = _side(layout, a_firsts, a_ends), _side(layout, b_firsts, b_ends)
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
