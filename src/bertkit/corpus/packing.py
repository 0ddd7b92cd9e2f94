"""Examples into micro-batches of fixed capacities, so that compiled code sees one shape (DESIGN: packed batches).

In: the lengths of an epoch's examples in their random order. Out: which examples form which micro-batch.
First come, first packed, until one does not fit; what is left is filled with the longest of the next examples that
do. The packing needs lengths alone, so any process can have it, and what has no slot is left out before training.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.masking import MaskingConfig
from bertkit.errors import BertkitError

Integers = NDArray[np.int64]
IGNORED = -100  # a target that counts nowhere: an unused slot; the same as tasks.pretraining's
LOOK_AHEAD = 256  # examples beyond those that surely fit, among which fillers are sought
SLACK = 0.125  # of sequences above the fullest micro-batch of the first epoch, since epochs differ
EPOCH_SLACK = 0.005  # of micro-batches at most that are spare in an epoch


@dataclass(frozen=True)
class Capacities:
    """The one shape of all micro-batches: T tokens, N sequences, M masked positions, and the longest sequence."""

    num_tokens: int
    num_sequences: int
    num_masked: int
    max_seqlen: int

    def __post_init__(self) -> None:
        if self.num_tokens < self.max_seqlen:
            raise BertkitError(
                f"{self.num_tokens} tokens a micro-batch are fewer than one sequence of {self.max_seqlen}; give more"
            )


@dataclass(frozen=True)
class Packing:
    """B micro-batches; number k holds the examples order[bounds[k] : bounds[k + 1]] of the plan."""

    order: NDArray[np.int32]  # [E]
    bounds: Integers  # [B + 1]
    lengths: NDArray[np.uint16]  # [E] in the plan's own order, special tokens included

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> Integers:
        """The examples of a micro-batch."""
        return self.order[self.bounds[index] : self.bounds[index + 1]].astype(np.int64)

    @property
    def num_sequences(self) -> Integers:
        """Sequences of each micro-batch, without dummies: [B]."""
        return np.diff(self.bounds)

    @property
    def num_tokens(self) -> Integers:
        """Real tokens of each micro-batch: [B]."""
        return np.add.reduceat(self.lengths[self.order], self.bounds[:-1], dtype=np.int64)

    def fill(self, num_tokens: int) -> float:
        """The share of the token budget that is real tokens."""
        return float(self.num_tokens.sum() / (len(self) * num_tokens))


def pack_epoch(lengths: NDArray[np.uint16], order: Integers, num_tokens: int) -> Packing:
    """Cut the order into micro-batches of at most `num_tokens` tokens, filling the rest of each from what follows."""
    micro_batches = list(_first_fit(lengths, order, num_tokens))
    bounds = np.cumsum([0, *map(len, micro_batches)])
    return Packing(np.concatenate(micro_batches).astype(np.int32), bounds, lengths)


def _first_fit(lengths: NDArray[np.uint16], order: Integers, num_tokens: int) -> Iterator[Integers]:
    window, position = order[:0], 0
    sizes = lengths[order].astype(np.int64)
    window_sizes = sizes[:0]
    most = num_tokens // max(1, int(sizes.min(initial=num_tokens))) + LOOK_AHEAD
    reach = min(most, 2 * num_tokens // max(1, int(sizes.mean())) + LOOK_AHEAD)
    while len(window) or position < len(order):
        refill = slice(position, position + reach - len(window))
        window, window_sizes = np.append(window, order[refill]), np.append(window_sizes, sizes[refill])
        position = min(refill.stop, len(order))
        is_taken = _take(window_sizes, num_tokens)
        yield window[is_taken]
        window, window_sizes = window[~is_taken], window_sizes[~is_taken]


def _take(sizes: Integers, num_tokens: int) -> NDArray[np.bool_]:
    """All up to the first that does not fit, then again and again the longest that does."""
    totals = np.cumsum(sizes)
    count = int(np.searchsorted(totals, num_tokens, side="right"))
    is_taken = np.zeros(len(sizes), dtype=np.bool_)
    is_taken[:count] = True
    gap = num_tokens - (int(totals[count - 1]) if count else 0)
    rest = sizes[count:].copy()
    while len(rest) and gap > 0:
        fitting = np.where(rest <= gap, rest, 0)
        best = int(fitting.argmax())
        if not fitting[best]:
            break
        is_taken[count + best] = True
        gap -= int(rest[best])
        rest[best] = num_tokens + 1
    return is_taken


def epoch_size(first: Packing) -> int:
    """Micro-batches of every epoch, given the first one's: a little more, since epochs differ, but hardly over 0.5 %."""
    # the number of examples varies by about half its square root; twice that root is over three deviations
    spread = int(2 * len(first) / len(first.order) ** 0.5)
    return len(first) + 1 + min(spread, int(EPOCH_SLACK * len(first)))


def stretch_packing(packing: Packing, size: int) -> Packing:
    """The same examples in exactly `size` micro-batches: the last ones in halves, so that positions are arithmetic.

    An epoch that drew so many examples that they need more, which small corpora may do, leaves its last ones out.
    """
    halved = np.arange(max(0, 2 * len(packing) - size), len(packing))
    middles = (packing.bounds[halved] + packing.bounds[halved + 1]) // 2
    bounds = np.unique(np.concatenate([packing.bounds, middles]))[: size + 1]
    return Packing(packing.order[: bounds[-1]], bounds, packing.lengths)


def choose_capacities(
    packing: Packing, masking: MaskingConfig, *, num_tokens: int, max_seqlen: int, num_special: int
) -> Capacities:
    """Capacities with room for every epoch, from the packing of the first: N with slack, M by what N and T allow."""
    most = int((packing.num_sequences + num_dummies(packing, num_tokens, max_seqlen)).max())
    num_sequences = _round_up(most + 1 + int(SLACK * most))
    # rounding, and the one mask that even a very short sequence gets, can exceed rate x length by this much
    maskable = np.arange(1, max_seqlen - num_special + 1)
    excess = float((masking.num_masked(maskable) - masking.rate * (maskable + num_special)).max())
    num_masked = min(num_tokens, _round_up(int(masking.rate * num_tokens + max(0.0, excess) * num_sequences) + 1))
    return Capacities(num_tokens, num_sequences, num_masked, max_seqlen)


def num_dummies(packing: Packing, num_tokens: int, max_seqlen: int) -> Integers:
    """Dummy sequences that the leftover tokens of each micro-batch form: one, save in an epoch's last, thin one."""
    return -(-(num_tokens - packing.num_tokens) // max_seqlen)


def check_capacities(packing: Packing, masking: MaskingConfig, capacities: Capacities, num_special: int) -> None:
    """Fail now if any micro-batch has more sequences or masks than there are slots."""
    dummies = num_dummies(packing, capacities.num_tokens, capacities.max_seqlen)
    num_sequences = packing.num_sequences + dummies
    masks = masking.num_masked(packing.lengths[packing.order].astype(np.int64) - num_special)
    num_masked = np.add.reduceat(masks, packing.bounds[:-1])
    for name, counts, capacity in (
        ("num_sequences", num_sequences, capacities.num_sequences),
        ("num_masked", num_masked, capacities.num_masked),
    ):
        if counts.max() > capacity:
            raise BertkitError(
                f"micro-batch {int(counts.argmax())} of the epoch needs {name} {int(counts.max())}, "
                f"the capacity is {capacity}; raise it"
            )


def fit_packing(packing: Packing, masking: MaskingConfig, capacities: Capacities, num_special: int) -> Packing:
    """The same without the last examples of any micro-batch that has no slots for them.

    Capacities come from the first epoch. One of hundreds may draw more short examples, if the corpus is small.
    """
    lengths = packing.lengths[packing.order].astype(np.int64)
    firsts, sizes = packing.bounds[:-1], packing.num_sequences
    num_tokens, num_masked = (
        _sums_within(counts, firsts, sizes) for counts in (lengths, masking.num_masked(lengths - num_special))
    )
    num_sequences = _sums_within(np.ones_like(lengths), firsts, sizes)
    dummies = -(-(capacities.num_tokens - num_tokens) // capacities.max_seqlen)
    fits = (num_sequences + dummies <= capacities.num_sequences) & (num_masked <= capacities.num_masked)
    if fits.all():
        return packing
    bounds = np.unique(np.append(0, np.cumsum(fits)[packing.bounds[1:] - 1]))
    return Packing(packing.order[fits], bounds, packing.lengths)


def _sums_within(counts: Integers, firsts: Integers, sizes: Integers) -> Integers:
    """Running sums that begin anew with every micro-batch."""
    sums = np.cumsum(counts)
    return sums - np.repeat((sums - counts)[firsts], sizes)


def _round_up(count: int, multiple: int = 8) -> int:
    return -(-count // multiple) * multiple
