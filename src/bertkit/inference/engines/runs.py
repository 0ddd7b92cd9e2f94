"""Sequences of any lengths become runs: what one call of the engine computes, few lengths and few enough tokens.

In: the lengths of all sequences. Out: runs, each with its sequences in the order of their lengths. Products run over all
tokens of a run at once; attention runs over boxes of one length each, so that nothing is padded.
Dimensions: N sequences, S tokens each, T tokens, D hidden, B boxes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bertkit.model.pooling import Pooling

RUN_TOKENS = 512  # a run's activations stay in cache
NUM_BOXES = 8  # lengths of one run
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Run:
    """Sequences of at most NUM_BOXES lengths, the shortest first."""

    sequences: Ints  # [N] which ones
    lengths: Ints  # [N]

    @property
    def num_tokens(self) -> int:
        """T."""
        return int(self.lengths.sum())

    @cached_property
    def starts(self) -> Ints:
        """Where each sequence begins among the run's tokens, [N]."""
        starts: Ints = np.cumsum(self.lengths) - self.lengths
        return starts

    @property
    def positions(self) -> Ints:
        """Of each token in its sequence, [T]."""
        positions: Ints = np.arange(self.num_tokens) - np.repeat(self.starts, self.lengths)
        return positions

    @cached_property
    def counts(self) -> tuple[Ints, Ints]:
        """How many sequences there are of each length, and the lengths."""
        lengths, counts = np.unique(self.lengths, return_counts=True)
        return counts.astype(np.int64), lengths

    def tokens(self, starts: Ints) -> Ints:
        """The rows of a packed batch whose sequences start there, in the order of this run, [T]."""
        rows: Ints = self.positions + np.repeat(starts[self.sequences], self.lengths)
        return rows

    def boxes(self, width: int) -> Ints:
        """The shape of each box, [B, 3]: sequences, tokens, width; the last ones may be empty."""
        boxes = np.zeros((NUM_BOXES, 3), np.int64)
        counts, lengths = self.counts
        boxes[: len(counts), 0], boxes[: len(counts), 1], boxes[:, 2] = counts, lengths, width
        return boxes

    def pool(self, vectors_TD: Floats, pooling: Pooling) -> Floats:
        """One vector a sequence, [N, D]: the mean or the maximum of its tokens."""
        pooled = []
        start = 0
        for count, length in zip(*self.counts, strict=True):
            box = vectors_TD[start : start + count * length].reshape(count, length, -1)
            start += count * length
            pooled.append(box.max(axis=1) if pooling == "max" else box.mean(axis=1))
        return np.concatenate(pooled)


def plan_runs(lengths: Ints, threads: int = 1, most_tokens: int = RUN_TOKENS) -> list[Run]:
    """Every sequence in one run; runs of about one size, so that all threads end together, the longest sequences first.

    Empty sequences, which fill pre-training's batches up, are in none.
    """
    order = np.argsort(lengths, kind="stable")
    order = order[np.count_nonzero(lengths == 0) :]
    runs: list[Run] = []
    filled = Filled(fair_size(int(lengths.sum()), threads, most_tokens), most_tokens)
    start = 0
    for end, length in enumerate(lengths[order].tolist()):
        if not filled.takes(length):
            runs.append(Run(order[start:end], lengths[order[start:end]]))
            start, filled = end, Filled(filled.fair, filled.most)
        filled.add(length)
    if len(order):
        runs.append(Run(order[start:], lengths[order[start:]]))
    return runs[::-1]


def fair_size(num_tokens: int, threads: int, most_tokens: int) -> float:
    """Tokens of a run such that all threads do equally many runs."""
    rounds = max(1, -(-num_tokens // (most_tokens * threads)))
    return num_tokens / (rounds * threads)


@dataclass
class Filled:
    """How full a run is while sequences of rising length are put in."""

    fair: float
    most: int
    num_tokens: int = 0
    num_lengths: int = 0
    last: int = 0

    def takes(self, length: int) -> bool:
        """Whether one more has room: in tokens, nearest to the fair size, and in boxes."""
        if not self.num_tokens:
            return True
        fits = self.num_tokens + length <= self.most and self.num_tokens + length / 2 <= self.fair
        return fits and self.num_lengths + (length != self.last) <= NUM_BOXES

    def add(self, length: int) -> None:
        """Put it in."""
        self.num_lengths += length != self.last
        self.num_tokens, self.last = self.num_tokens + length, length
