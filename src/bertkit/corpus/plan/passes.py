"""How often an epoch goes through each file of a store: some text may count for more, and some for less, or not at all.

Whole passes take every stretch; what is left of 1.5, say, is a share of the file's tokens, other stretches each epoch.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from bertkit.corpus.plan.layout import Layout, Offsets
from bertkit.corpus.random import draw_uniform, make_keys, permute
from bertkit.errors import BertkitError

PASSES_KEY = 6  # keeps these random numbers apart from those of plans, order, masks and shifts
MOST_SHOWN = 5


def passes_by_file(names: Sequence[str], asked: Mapping[str, float]) -> tuple[float, ...] | None:
    """How often each file is read, by patterns such as `books*`; once where none fits. None: every file once."""
    patterns: dict[str, str] = {}
    for pattern in asked:
        found = [name for name in names if fnmatchcase(name, pattern)]
        if not found:
            shown = ", ".join(names[:MOST_SHOWN]) + (", ..." if len(names) > MOST_SHOWN else "")
            raise BertkitError(f"data.passes names {pattern!r}, and the store was made of no such file; it has {shown}")
        for name in found:
            other = patterns.setdefault(name, pattern)
            if other != pattern:
                raise BertkitError(f"data.passes has {other!r} and {pattern!r}, which both mean {name}; keep one")
    return tuple(float(asked[patterns[name]]) if name in patterns else 1.0 for name in names) if asked else None


def chosen_stretches(layout: Layout, *, seed: int, epoch: int) -> tuple[Offsets, Offsets]:
    """The stretches of an epoch, as often as each is read, and which of its passes each one is."""
    counts = np.floor(layout.passes).astype(np.int64)[layout.stretch_shard]
    sizes = np.diff(layout.unit_offsets[layout.stretch_offsets])
    for shard, share in enumerate(layout.passes % 1.0):
        if share:
            rows = np.flatnonzero(layout.stretch_shard == shard)
            rows = rows[permute(len(rows), PASSES_KEY, seed, epoch, shard)]
            # By chance, so that one lone stretch has its turns.
            rounding = draw_uniform(make_keys(PASSES_KEY, seed, epoch, shard), 0)
            starts = np.cumsum(sizes[rows]) - sizes[rows]
            counts[rows[starts + rounding * sizes[rows] < share * sizes[rows].sum()]] += 1
    stretches = np.repeat(np.arange(len(counts)), counts)
    return stretches, np.arange(len(stretches)) - np.repeat(np.cumsum(counts) - counts, counts)
