"""The loader's processes: workers that build micro-batches, and one that plans the next epoch.

Workers write into slots of shared memory, which the fixed capacities allow, and wait for the next number. All ignore
signals and end by the parent or after it, so that Ctrl-C and a killed parent leave nothing behind. No torch here:
they start without it.
"""

from __future__ import annotations

import multiprocessing as mp
import pickle
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import c_int64
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import BertkitError
from bertkit.tasks.feed.arrays import ArrayFeed, Counts
from bertkit.tasks.feed.epochs import Epoch, load_epoch, save_epoch

FEED = "feed.pickle"  # our own, for our own children
NUM_SLOTS = 4  # micro-batches that a worker may be ahead
PATIENCE = 5.0  # seconds between looks at whether the parent still lives, and until a dead child's code is known


@dataclass(frozen=True)
class Request:
    """A number, to be built or only counted, and the slot it goes to."""

    index: int
    is_built: bool
    slot: int = 0


class Process:
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

    def answer(self) -> Any:
        """Wait until what was asked is done; a failure there fails here."""
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(PATIENCE)  # so that its code is known
            raise BertkitError(
                f"a loader process ended with code {self.process.exitcode}; give it more memory or fewer workers, "
                "or set data.workers = 0; a script must train under `if __name__ == '__main__'`"
            ) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """End the child at once: it holds nothing that anybody needs, and may be in the middle of an epoch."""
        self.pipe.close()
        self.process.kill()
        self.process.join()
        self.process.close()


class Builder(Process):
    """A worker that fills its slots of shared memory."""

    def __init__(self, feed: ArrayFeed, folder: Path, context: Any) -> None:
        self._feed = feed
        memory = context.RawArray(c_int64, NUM_SLOTS * feed.buffer_size)
        self._slots = np.frombuffer(memory, dtype=np.int64).reshape(NUM_SLOTS, -1)
        self._num_asked = self._num_taken = 0
        super().__init__(context, _build_batches, folder, memory)

    @property
    def num_waiting(self) -> int:
        """How much it has to do."""
        return self._num_asked - self._num_taken

    def ask(self, request: Request) -> None:
        """Let it build or count a number."""
        # planned, and in the folder, before a worker looks for it
        self._feed.epoch(self._feed.locate(request.index)[0])
        self.send(replace(request, slot=self._num_asked % NUM_SLOTS))
        self._num_asked += 1

    def take(self, buffer: np.ndarray | None) -> Counts:
        """Wait for what was asked first, and copy it where it was built."""
        counts: Counts = self.answer()
        if buffer is not None:
            buffer[:] = self._slots[self._num_taken % NUM_SLOTS]
        self._num_taken += 1
        return counts


@contextmanager
def running(worker: Process) -> Iterator[Any]:
    try:
        yield worker
    finally:
        worker.close()


@contextmanager
def planning_ahead(feed: ArrayFeed, folder: Path, context: Any) -> Iterator[None]:
    """While this lasts, the feed gets its epochs from the folder, where another process puts the next one ahead."""
    # Through the folder and not as arguments: a start waits until its arguments are read, and so would the next one.
    (folder / FEED).write_bytes(pickle.dumps(feed))
    with running(Process(context, _build_epochs, folder)) as planner:
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
            asked.discard(number - 3)  # a step that is taken anew may want it once more
            return load_epoch(path)

        with feed.epochs_from(make_epoch) as known:
            asked.update(known)
            for number, epoch in known.items():
                save_epoch(epoch, _epoch_folder(folder, number))
                ask(number + 1)
            yield


def _epoch_folder(folder: Path, number: int) -> Path:
    return folder / f"epoch-{number}"


def _load_feed(folder: Path) -> ArrayFeed:
    feed: ArrayFeed = pickle.loads((folder / FEED).read_bytes())
    return feed


def _build_epochs(pipe: Connection, folder: Path) -> None:
    feed = _load_feed(folder)
    _serve(pipe, lambda number: save_epoch(feed.build_epoch(number), _epoch_folder(folder, number)))
    parent = mp.parent_process()
    if parent is not None and not parent.is_alive():  # killed: nobody else tidies up
        shutil.rmtree(folder, ignore_errors=True)


def _build_batches(pipe: Connection, folder: Path, memory: Any) -> None:
    feed = _load_feed(folder)
    slots = np.frombuffer(memory, dtype=np.int64).reshape(NUM_SLOTS, -1)

    def load(number: int) -> Epoch:
        try:
            return load_epoch(_epoch_folder(folder, number))
        except FileNotFoundError:  # epochs of a few micro-batches: the parent is several ahead and has removed it
            return feed.build_epoch(number)

    def do(request: Request) -> Counts:
        return feed.fill(request.index, slots[request.slot]) if request.is_built else feed.counts(request.index)

    with feed.epochs_from(load):
        _serve(pipe, do)


def _serve(pipe: Connection, do: Callable[[Any], Any]) -> None:
    """Do what comes through the pipe until killed, or the parent is gone, or something fails."""
    for name in (signal.SIGINT, signal.SIGTERM):  # the parent decides; a signal to the whole group is meant for it
        signal.signal(name, signal.SIG_IGN)
    parent = mp.parent_process()
    with suppress(EOFError, OSError):
        while True:
            while not pipe.poll(PATIENCE):
                if parent is None or not parent.is_alive():
                    return
            request = pipe.recv()
            try:
                answer = do(request)
            except Exception as error:
                pipe.send(error if isinstance(error, BertkitError) else RuntimeError(traceback.format_exc()))
                return
            pipe.send(answer)
