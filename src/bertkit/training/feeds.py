"""What the loop needs from data: micro-batches by number, and their counts before they are built.

The order is a function of the number alone, so a run resumed at any step, on any number of processes, sees what the
uninterrupted run would have seen. prefetching.py builds them ahead; the loop asks by number all the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from bertkit.tasks.pretraining import IGNORED, PretrainingBatch


class Batch(Protocol):
    """Anything that can be moved to a device; a dataclass of tensors."""

    def to(self: "BatchT", device: torch.device | str) -> "BatchT":
        """The same batch on another device."""


BatchT = TypeVar("BatchT", bound=Batch)
MadeT_co = TypeVar("MadeT_co", bound=Batch, covariant=True)
T = TypeVar("T")


class MicroBatches(Protocol[MadeT_co]):
    """Micro-batches in an order that is a function of (seed, index), of pre-training or of any task."""

    def micro_batch(self, index: int) -> MadeT_co:
        """The micro-batch of this number."""

    def counts(self, index: int) -> Any:
        """Its counts, known without building it."""


class BatchCounts(Protocol):
    """How much a micro-batch of pre-training holds, as host integers."""

    @property
    def num_masked(self) -> int:
        """Targets of masked language modelling."""

    @property
    def num_pairs(self) -> int:
        """Targets of next sentence prediction."""

    @property
    def num_tokens(self) -> int:
        """Real tokens."""


class Feed(MicroBatches[PretrainingBatch], Protocol):
    """Those of pre-training."""

    def counts(self, index: int) -> BatchCounts:
        """Its counts, known without building it."""


@dataclass(frozen=True)
class StepCounts:
    """The counts of a whole global step, over all processes."""

    num_masked: int
    num_pairs: int
    num_tokens: int

    @property
    def denominators(self) -> tuple[int, int]:
        """What the summed losses are divided by."""
        return max(1, self.num_masked), max(1, self.num_pairs)


def sum_counts(counts: Iterable[BatchCounts]) -> StepCounts:
    """Add up the micro-batches of a step."""
    rows = [(count.num_masked, count.num_pairs, count.num_tokens) for count in counts]
    return StepCounts(*(sum(column) for column in zip(*rows, strict=True)))


def count_batch(batch: PretrainingBatch) -> StepCounts:
    """What a micro-batch holds, by looking at it."""
    masked, pairs = ((t != IGNORED).sum().item() for t in (batch.masked_token_ids, batch.next_labels))
    return StepCounts(int(masked), int(pairs), batch.inputs.num_tokens)


class StreamFeed:
    """Batches that come one after another and only once; the toy runs of the demo and of tests use it."""

    def __init__(self, batches: Iterator[PretrainingBatch]) -> None:
        self._batches = batches
        self._index = -1
        self._batch: PretrainingBatch | None = None

    def micro_batch(self, index: int) -> PretrainingBatch:
        """The batch at hand, or the next one."""
        if self._batch is None or index != self._index:
            self._batch, self._index = next(self._batches), index
        return self._batch

    def counts(self, index: int) -> StepCounts:
        """Counted from the batch itself."""
        return count_batch(self.micro_batch(index))


NO_COUNTS = StepCounts(0, 0, 0)
