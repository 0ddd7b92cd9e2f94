"""A feed's micro-batches built ahead in worker processes.

In: a PretrainingFeed and the numbers wanted. Out: its batches, pinned where CUDA is, and their counts, by number or
in a stream.
"""

from __future__ import annotations

import atexit
import multiprocessing as mp
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.tasks.feed.arrays import Counts
from bertkit.tasks.feed.processes import NUM_SLOTS, Builder, Request, planning_ahead, running

if TYPE_CHECKING:
    from bertkit.tasks.feed.pretraining import PretrainingFeed
    from bertkit.tasks.pretraining import PretrainingBatch


class BatchLoader:
    """Micro-batches by number, built in worker processes from when they are asked for; close it to end the workers."""

    def __init__(
        self,
        feed: PretrainingFeed,
        num_workers: int,
        *,
        pin_memory: bool | None = None,
        start_method: str = "spawn",
    ) -> None:
        import torch

        self._feed = feed
        self._pinned = torch.cuda.is_available() if pin_memory is None else pin_memory
        self._waiting: deque[Request] = deque()  # for a free slot
        self._sent: deque[tuple[Builder, Request]] = deque()  # answered in this order
        self._asked: set[int] = set()
        self._batches: dict[int, PretrainingBatch] = {}
        self._counts: dict[int, Counts] = {}
        self._stack = ExitStack()
        atexit.register(self.close)  # before multiprocessing's own end, which waits for workers that wait for us
        with self._stack:
            context = mp.get_context(start_method)
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bertkit-feed-")))
            self._stack.enter_context(planning_ahead(feed.arrays, folder, context))
            made = (Builder(feed.arrays, folder, context) for _ in range(num_workers))
            self._workers = [self._stack.enter_context(running(worker)) for worker in made]
            self._stack = self._stack.pop_all()  # it is whole: from now on `close` ends it

    def ask(self, index: int) -> None:
        """Let a worker build this number."""
        self._ask(Request(index, is_built=True))

    def ask_counts(self, index: int) -> None:
        """Let a worker count it, without building it."""
        self._ask(Request(index, is_built=False))

    def take(self, index: int) -> PretrainingBatch:
        """The micro-batch, waited for; one that was not asked for is built here."""
        while index in self._asked and index not in self._batches:
            self._receive()
        return self._batches.pop(index) if index in self._batches else self._feed.micro_batch(index)

    def counts(self, index: int) -> Counts:
        """Its counts, likewise."""
        while index in self._asked and index not in self._counts:
            self._receive()
        return self._counts.pop(index) if index in self._counts else self._feed.counts(index)

    def forget(self) -> None:
        """Drop what was asked for; what is being built is built in vain."""
        self._waiting.clear()
        while self._sent:
            self._receive()
        self._asked.clear()
        self._batches.clear()
        self._counts.clear()

    def close(self) -> None:
        """End the workers."""
        atexit.unregister(self.close)
        self._stack.close()

    def _ask(self, request: Request) -> None:
        if request.index not in self._asked:
            self._asked.add(request.index)
            self._waiting.append(request)
            self._send()

    def _send(self) -> None:
        """Give what waits to the workers that have least to do."""
        while self._waiting:
            worker = min(self._workers, key=lambda one: one.num_waiting)
            if worker.num_waiting == NUM_SLOTS:
                return
            request = self._waiting.popleft()
            worker.ask(request)
            self._sent.append((worker, request))

    def _receive(self) -> None:
        """Wait for what was sent first; then its slot is free for another."""
        import torch

        worker, request = self._sent.popleft()
        self._asked.discard(request.index)
        if request.is_built:
            buffer = torch.empty(self._feed.arrays.buffer_size, dtype=torch.int64, pin_memory=self._pinned)
            self._counts[request.index] = worker.take(buffer.numpy())
            self._batches[request.index] = self._feed.wrap(buffer)
        else:
            self._counts[request.index] = worker.take(None)
        self._send()


def prefetch(
    feed: PretrainingFeed,
    indices: Iterable[int],
    num_workers: int,
    *,
    pin_memory: bool | None = None,
    start_method: str = "spawn",
) -> Iterator[PretrainingBatch]:
    """The micro-batches of these numbers, in their order; close the iterator to end the workers early."""
    if num_workers < 1:
        yield from map(feed.micro_batch, indices)
        return
    coming, numbers = deque[int](), iter(indices)
    with closing(BatchLoader(feed, num_workers, pin_memory=pin_memory, start_method=start_method)) as loader:
        while True:
            for index in islice(numbers, NUM_SLOTS * num_workers - len(coming)):
                loader.ask(index)
                coming.append(index)
            if not coming:
                return
            loader.counts(coming[0])
            yield loader.take(coming.popleft())
