"""A feed's micro-batches built ahead in worker processes, in order.

In: a PretrainingFeed and the numbers wanted. Out: its batches, pinned where CUDA is. Workers write into slots of
shared memory, which the fixed capacities allow, and wait for the next number; one more process plans the next epoch.
They ignore signals and end when told or with the parent, so that Ctrl-C and a killed parent leave nothing behind.
"""

from __future__ import annotations

import multiprocessing as mp
import shutil
import signal
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from ctypes import c_int64
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.errors import BertkitError
from bertkit.tasks.feed_arrays import ArrayFeed
from bertkit.tasks.feed_epochs import Epoch, load_epoch, save_epoch

if TYPE_CHECKING:
    from bertkit.tasks.feed import PretrainingFeed
    from bertkit.tasks.pretraining import PretrainingBatch

NUM_SLOTS = 4  # micro-batches that a worker may be ahead
STOP = "stop"  # a forked child keeps both ends of its pipe open, so that the end of the pipe would not reach it
PATIENCE = 5.0  # seconds between looks at whether the parent still lives, and until a worker is ended by force


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
    with ExitStack() as stack:
        context = mp.get_context(start_method)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bertkit-feed-")))
        stack.enter_context(_planning_ahead(feed.arrays, folder, context))
        workers = [stack.enter_context(_running(_Builder(feed.arrays, folder, context))) for _ in range(num_workers)]
        yield from _in_order(feed, iter(indices), workers, pin_memory)


def _in_order(
    feed: PretrainingFeed, indices: Iterator[int], workers: list[_Builder], pin_memory: bool | None
) -> Iterator[PretrainingBatch]:
    """Numbers go to the workers in turn, so their batches come back in turn."""
    import torch

    pinned = torch.cuda.is_available() if pin_memory is None else pin_memory
    coming = deque(worker for _ in range(NUM_SLOTS) for worker in workers if worker.ask(indices))
    while coming:
        worker = coming.popleft()
        buffer = torch.empty(feed.arrays.buffer_size, dtype=torch.int64, pin_memory=pinned)
        worker.take(buffer.numpy())
        if worker.ask(indices):
            coming.append(worker)
        yield feed.wrap(buffer)


class _Process:
    """A child process with a pipe to it."""

    def __init__(self, context: Any, target: Callable[..., None], *arguments: Any) -> None:
        self.pipe, child = context.Pipe()
        self.process = context.Process(target=target, args=(child, *arguments), daemon=True)
        self.process.start()
        child.close()  # so that the end of the child is the end of the pipe

    def send(self, request: Any) -> None:
        """Ask for something; a child that has failed says why when its answer is read."""
        with suppress(BrokenPipeError):
            self.pipe.send(request)

    def answer(self) -> None:
        """Wait until what was asked is done; a failure there fails here."""
        try:
            failure = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise BertkitError(
                f"a loader process ended with code {self.process.exitcode}; give it more memory or fewer workers"
            ) from None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """End the child."""
        self.send(STOP)
        self.pipe.close()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()


class _Builder(_Process):
    """A worker that fills its slots of shared memory."""

    def __init__(self, feed: ArrayFeed, folder: Path, context: Any) -> None:
        self._feed = feed
        memory = context.RawArray(c_int64, NUM_SLOTS * feed.buffer_size)
        self._slots = np.frombuffer(memory, dtype=np.int64).reshape(NUM_SLOTS, -1)
        self._num_asked = self._num_taken = 0
        super().__init__(context, _build_batches, feed, folder, memory)

    def ask(self, indices: Iterator[int]) -> bool:
        """Let it build the next number, if there is one."""
        index = next(indices, None)
        if index is None:
            return False
        self._feed.epoch(self._feed.locate(index)[0])  # planned, and in the folder, before a worker looks for it
        self.send((self._num_asked % NUM_SLOTS, index))
        self._num_asked += 1
        return True

    def take(self, buffer: np.ndarray) -> None:
        """Wait for the oldest batch and copy it."""
        self.answer()
        buffer[:] = self._slots[self._num_taken % NUM_SLOTS]
        self._num_taken += 1


@contextmanager
def _running(worker: _Process) -> Iterator[Any]:
    try:
        yield worker
    finally:
        worker.close()


@contextmanager
def _planning_ahead(feed: ArrayFeed, folder: Path, context: Any) -> Iterator[None]:
    """While this lasts, the feed gets its epochs from the folder, where another process puts the next one ahead."""
    with _running(_Process(context, _build_epochs, feed, folder)) as planner:
        asked: set[int] = set()

        def ask(number: int) -> None:
            if number not in asked and not feed.evaluation:
                asked.add(number)
                planner.send(number)

        def make_epoch(number: int) -> Epoch:
            ask(number)
            while not (path := _epoch_folder(folder, number)).is_dir():
                planner.answer()
            ask(number + 1)
            shutil.rmtree(_epoch_folder(folder, number - 3), ignore_errors=True)
            return load_epoch(path)

        with feed.epochs_from(make_epoch) as known:
            asked.update(known)
            for number, epoch in known.items():
                save_epoch(epoch, _epoch_folder(folder, number))
                ask(number + 1)
            yield


def _epoch_folder(folder: Path, number: int) -> Path:
    return folder / f"epoch-{number}"


def _build_epochs(pipe: Connection, feed: ArrayFeed, folder: Path) -> None:
    _serve(pipe, lambda number: save_epoch(feed.build_epoch(number), _epoch_folder(folder, number)))


def _build_batches(pipe: Connection, feed: ArrayFeed, folder: Path, memory: Any) -> None:
    slots = np.frombuffer(memory, dtype=np.int64).reshape(NUM_SLOTS, -1)
    with feed.epochs_from(lambda number: load_epoch(_epoch_folder(folder, number))):
        _serve(pipe, lambda request: feed.fill(request[1], slots[request[0]]))


def _serve(pipe: Connection, do: Callable[[Any], None]) -> None:
    """Do what comes through the pipe until told to stop, or the parent is gone, or something fails."""
    for name in (signal.SIGINT, signal.SIGTERM):  # the parent decides; a signal to the whole group is meant for it
        signal.signal(name, signal.SIG_IGN)
    parent = mp.parent_process()
    with suppress(EOFError, OSError):
        while True:
            while not pipe.poll(PATIENCE):
                if parent is None or not parent.is_alive():
                    return
            if (request := pipe.recv()) == STOP:
                return
            try:
                do(request)
            except Exception as error:
                pipe.send(error if isinstance(error, BertkitError) else RuntimeError(traceback.format_exc()))
                return
            pipe.send(None)
