"""What the loop needs from data: micro-batches by number, and their counts before they are built.

The order is a function of the number alone, so a run resumed at any step, on any number of processes, sees what the
uninterrupted run would have seen. Batches are built ahead in threads; the loop asks by number all the same.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from bertkit.tasks.pretraining import IGNORED, PretrainingBatch
from bertkit.training.plan import Place


class BatchCounts(Protocol):
    """How much a micro-batch holds, as host integers."""

    @property
    def num_masked(self) -> int:
        """Targets of masked language modelling."""

    @property
    def num_pairs(self) -> int:
        """Targets of next sentence prediction."""

    @property
    def num_tokens(self) -> int:
        """Real tokens."""


class Feed(Protocol):
    """Micro-batches in an order that is a function of (seed, index)."""

    def micro_batch(self, index: int) -> PretrainingBatch:
        """The micro-batch of this number."""

    def counts(self, index: int) -> BatchCounts:
        """Its counts, known without building it."""


@dataclass(frozen=True)
class StepCounts:
    """The counts of a whole global step, over all processes."""

    num_masked: int
    num_pairs: int
    num_tokens: int


def sum_counts(counts: Iterable[BatchCounts]) -> StepCounts:
    """Add up the micro-batches of a step."""
    rows = [(count.num_masked, count.num_pairs, count.num_tokens) for count in counts]
    return StepCounts(*(sum(column) for column in zip(*rows, strict=True)))


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
        batch = self.micro_batch(index)
        masked, pairs = ((t != IGNORED).sum().item() for t in (batch.masked_token_ids, batch.next_labels))
        return StepCounts(int(masked), int(pairs), batch.inputs.num_tokens)


NO_COUNTS = StepCounts(0, 0, 0)
Key = tuple[int, int]  # stage, index


class Prefetcher:
    """Builds announced micro-batches in threads; what was not announced is built when asked for."""

    def __init__(self, feeds: Sequence[Feed], workers: int, *, pinned: bool = False) -> None:
        self._feeds = feeds
        self._pinned = pinned
        self._pool = ThreadPoolExecutor(workers, "bertkit-feed") if workers else None
        self._coming: dict[Key, Future[PretrainingBatch]] = {}
        self._counts: dict[Place, Future[StepCounts]] = {}

    def announce(self, place: Place, keys: Iterable[Key]) -> None:
        """Begin to count a step and to build those of its micro-batches that this process computes."""
        if self._pool is None or place in self._counts:
            return
        self._counts[place] = self._pool.submit(self._count, place)
        for key in keys:
            self._coming[key] = self._pool.submit(self._build, key)

    def take_counts(self, place: Place) -> StepCounts:
        """The counts of a whole step."""
        coming = self._counts.pop(place, None)
        return self._count(place) if coming is None else coming.result()

    def take(self, key: Key) -> PretrainingBatch:
        """The micro-batch, waited for if it is being built."""
        coming = self._coming.pop(key, None)
        return self._build(key) if coming is None else coming.result()

    def close(self) -> None:
        """Forget what nobody asked for."""
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._coming.clear()
        self._counts.clear()

    def _count(self, place: Place) -> StepCounts:
        feed = self._feeds[place.stage]
        return sum_counts(feed.counts(index) for index in range(place.first, place.first + place.count))

    def _build(self, key: Key) -> PretrainingBatch:
        stage, index = key
        batch = self._feeds[stage].micro_batch(index)
        return map_tensors(batch, lambda tensor: tensor.pin_memory()) if self._pinned else batch


def map_tensors(batch: PretrainingBatch, change: Callable[[Tensor], Tensor]) -> PretrainingBatch:
    """The same batch with every tensor changed."""
    inputs = batch.inputs
    return PretrainingBatch(
        inputs=replace(
            inputs,
            token_ids=change(inputs.token_ids),
            segment_ids=change(inputs.segment_ids),
            position_ids=change(inputs.position_ids),
            cu_seqlens=change(inputs.cu_seqlens),
        ),
        masked_positions=change(batch.masked_positions),
        masked_token_ids=change(batch.masked_token_ids),
        next_labels=change(batch.next_labels),
    )
