"""Worker processes for `bertkit prepare`: jobs in, answers in the order of the jobs, a bounded number under way.

With one worker everything happens in this process. A thread here waits for each worker, so the parent can go on
reading and writing while all of them encode.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from bertkit.corpus.prepare.blocks import EncodedBlock
from bertkit.corpus.prepare.jobs import Blocks, Jobs, Progress
from bertkit.errors import BertkitError

PARALLELISM = "TOKENIZERS_PARALLELISM"
ENDED = "a worker process ended by itself (out of memory?); start again to go on, or take fewer --workers"


class Pool:
    """Runs jobs by name, on worker processes or here; use as a context manager."""

    def __init__(self, jobs: Jobs, num_workers: int) -> None:
        self.jobs = jobs
        self.num_workers = num_workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._free: SimpleQueue[Connection] = SimpleQueue()
        self._threads = ThreadPoolExecutor(num_workers)

    def __enter__(self) -> Pool:
        if self.num_workers > 1:
            for _ in range(self.num_workers):
                self._start_worker()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for process in self._processes:
                process.terminate()
        self._threads.shutdown(cancel_futures=True)
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.wait()

    def run(self, name: str, jobs: Iterable[tuple[Any, ...]], progress: Progress) -> Iterator[Any]:
        """The answers in the order of the jobs; two for each worker are under way or waiting."""
        if self.num_workers == 1:
            with one_thread():
                yield from (getattr(self.jobs, name)(*arguments, progress) for arguments in jobs)
            return
        waiting: deque[Future[Any]] = deque()
        for arguments in jobs:
            waiting.append(self._threads.submit(self._ask, name, arguments, progress))
            if len(waiting) >= 2 * self.num_workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def encode(self, blocks: Blocks) -> Iterator[EncodedBlock]:
        """The blocks of one file, encoded by all workers."""
        return self.run("encode", ((block,) for block in blocks), lambda count: None)

    def _start_worker(self) -> None:
        ours, theirs = Pipe()
        self._processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "bertkit.corpus.prepare.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | {PARALLELISM: "false"},
            )
        )
        theirs.close()
        ours.send((self.jobs.folder, self.jobs.work, self.jobs.options))
        self._connections.append(ours)
        self._free.put(ours)

    def _ask(self, name: str, arguments: tuple[Any, ...], progress: Progress) -> Any:
        connection = self._free.get()
        try:
            connection.send((name, arguments))
            while (answer := connection.recv())[0] == "progress":
                progress(answer[1])
        except (EOFError, OSError):  # also in the middle of an answer
            raise BertkitError(ENDED) from None
        finally:
            self._free.put(connection)
        match answer:
            case ("refused", message):
                raise BertkitError(message)
            case ("failed", (number, reason, path)):
                raise OSError(number, reason, path)
        return answer[1]


@contextmanager
def one_thread() -> Iterator[None]:
    """`tokenizers` on one core, as one worker was asked for; what the caller had set comes back."""
    before = os.environ.get(PARALLELISM)
    os.environ[PARALLELISM] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[PARALLELISM]
        else:
            os.environ[PARALLELISM] = before
