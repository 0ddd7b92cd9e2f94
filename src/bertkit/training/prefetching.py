"""Micro-batches by number, built ahead of the loop: in processes for the feed of pre-training, in threads for others.

In: feeds, one a stage, and the numbers of the steps that come. Out: batches and counts, asked for by number; what was
not announced is built when asked for, so the order never depends on what was built ahead.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from bertkit.model.packed import map_tensors
from bertkit.tasks.feed.pretraining import PretrainingFeed
from bertkit.tasks.feed.workers import BatchLoader
from bertkit.training.feeds import Batch, BatchT, MicroBatches, sum_counts
from bertkit.training.plan import Place

Key = tuple[int, int]  # stage, index
SourceT_co = TypeVar("SourceT_co", bound=Batch, covariant=True)
AHEAD_OF_A_WORKER = 2  # micro-batches announced for each, so that none is ever idle


class Source(Protocol[SourceT_co]):
    """One stage's feed, with its work done ahead."""

    def ask(self, index: int) -> None:
        """Begin to build a micro-batch."""

    def ask_counts(self, index: int) -> None:
        """Begin to count one that another process builds."""

    def take(self, index: int) -> SourceT_co:
        """The micro-batch."""

    def counts(self, index: int) -> Any:
        """Its counts."""

    def forget(self) -> None:
        """What was asked for is not wanted any more."""

    def close(self) -> None:
        """No more work."""


class Threads(Generic[BatchT]):
    """Any feed; without threads, what is announced is built when it is taken."""

    def __init__(self, feed: MicroBatches[BatchT], workers: int, *, pinned: bool) -> None:
        self._feed, self._pinned = feed, pinned
        self._pool = ThreadPoolExecutor(workers, "bertkit-feed") if workers else None
        self._coming: dict[int, Future[BatchT]] = {}
        self._counts: dict[int, Future[Any]] = {}

    def ask(self, index: int) -> None:
        """Build and count it in a thread."""
        self.ask_counts(index)
        if self._pool:
            self._coming[index] = self._pool.submit(self._build, index)

    def ask_counts(self, index: int) -> None:
        """Count it in a thread."""
        if self._pool:
            self._counts[index] = self._pool.submit(self._feed.counts, index)

    def take(self, index: int) -> BatchT:
        """The micro-batch, waited for if it is being built."""
        coming = self._coming.pop(index, None)
        return self._build(index) if coming is None else coming.result()

    def counts(self, index: int) -> Any:
        """Its counts, likewise."""
        coming = self._counts.pop(index, None)
        return self._feed.counts(index) if coming is None else coming.result()

    def forget(self) -> None:
        """Let the threads finish in vain."""
        self._coming.clear()
        self._counts.clear()

    def close(self) -> None:
        """Wait for the threads."""
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self.forget()

    def _build(self, index: int) -> BatchT:
        batch = self._feed.micro_batch(index)
        return map_tensors(batch, lambda tensor: tensor.pin_memory()) if self._pinned else batch


class Prefetcher(Generic[BatchT]):
    """The sources of all stages; a stage's workers start with its first announcement and end with the stage."""

    def __init__(
        self,
        feeds: Sequence[MicroBatches[BatchT]],
        workers: int,
        *,
        pinned: bool = False,
        add: Callable[[Iterable[Any]], Any] = sum_counts,
    ) -> None:
        self._feeds, self._workers, self._pinned, self._add = feeds, workers, pinned, add
        self._sources: dict[int, Source[BatchT]] = {}
        self._announced: dict[Place, int] = {}  # and how many micro-batches of it are built here

    @property
    def has_room(self) -> bool:
        """Whether steps further ahead may be announced, so that no worker is idle."""
        return sum(self._announced.values()) < AHEAD_OF_A_WORKER * self._workers

    def announce(self, place: Place, keys: Sequence[Key]) -> None:
        """Begin to count a step and to build those of its micro-batches that this process computes."""
        if not self._workers or place in self._announced:
            return
        source, own = self._source(place.stage), {index for _, index in keys}
        for index in indices_of(place):
            source.ask(index) if index in own else source.ask_counts(index)
        self._announced[place] = len(own)

    def take_counts(self, place: Place) -> Any:
        """The counts of a whole step; workers of a stage that is over end."""
        self._announced.pop(place, None)
        for stage in [stage for stage in self._sources if stage < place.stage]:
            self._sources.pop(stage).close()
            self._announced = {coming: own for coming, own in self._announced.items() if coming.stage != stage}
        source = self._source(place.stage)
        return self._add([source.counts(index) for index in indices_of(place)])

    def take(self, key: Key) -> BatchT:
        """The micro-batch, waited for if it is being built."""
        stage, index = key
        return self._source(stage).take(index)

    def forget(self) -> None:
        """What was announced will not be asked for: the steps are cut anew."""
        self._announced.clear()
        for source in self._sources.values():
            source.forget()

    def close(self) -> None:
        """End all workers."""
        self._announced.clear()
        while self._sources:
            self._sources.popitem()[1].close()

    def _source(self, stage: int) -> Source[BatchT]:
        if stage not in self._sources:
            self._sources[stage] = make_source(self._feeds[stage], self._workers, pinned=self._pinned)
        return self._sources[stage]


def make_source(feed: MicroBatches[BatchT], workers: int, *, pinned: bool) -> Source[BatchT]:
    """Processes where planning an epoch would hold up the loop: threads share its interpreter lock."""
    anything: Any = feed
    if workers and isinstance(anything, PretrainingFeed):
        made: Any = BatchLoader(anything, workers, pin_memory=pinned)
        loader: Source[BatchT] = made
        return loader
    return Threads(feed, workers, pinned=pinned)


def indices_of(place: Place) -> range:
    """The micro-batches of a step, over all processes."""
    return range(place.first, place.first + place.count)
