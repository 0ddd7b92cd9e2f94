"""Jobs on several processes that may share one GPU: small models leave it idle. Any study can use it.

A job names a function of the package, `module:function`, which is called with the job's arguments and a progress
callback and returns plain values. One worker: everything happens in this process, one job after another. Results are
handed out as they come; whoever stores them can start again and leave the finished ones out.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from bertkit.errors import BertkitError

PATIENCE = 0.2  # seconds between looks at whether to stop
ENDED = "a worker process ended by itself (out of memory?); start again to go on, or take fewer --workers"
ShareDone = Callable[[float], None]  # told between 0 and 1


@dataclass(frozen=True)
class Job:
    """One piece of work; `weight` is how long it takes beside the others, roughly."""

    name: str
    function: str  # module:function
    arguments: Mapping[str, Any] = field(repr=False)
    weight: float = 1.0


class Watch:
    """What jobs say of themselves while they run; a study's live line overrides these."""

    def on_progress(self, job: Job, share: float) -> None:
        """A job is this far."""

    def on_result(self, job: Job, result: Any) -> None:
        """A job is done."""


@dataclass
class TimeLeft:
    """How much is done of all jobs by weight, and how long the rest will take at this pace."""

    jobs: Sequence[Job]
    started: float = field(default_factory=time.monotonic)
    shares: dict[str, float] = field(default_factory=dict)

    def update(self, job: Job, share: float) -> None:
        """A job is this far."""
        self.shares[job.name] = share

    @property
    def share(self) -> float:
        """Of all the work, between 0 and 1."""
        total = sum(job.weight for job in self.jobs)
        return sum(job.weight * self.shares.get(job.name, 0.0) for job in self.jobs) / total if total else 1.0

    def seconds(self) -> float | None:
        """None where too little is done to say."""
        share = self.share
        return (time.monotonic() - self.started) * (1 - share) / share if share > 0.01 else None


def run_job(job: Job, progress: ShareDone) -> Any:
    """Call the job's function here."""
    module, _, name = job.function.partition(":")
    return getattr(import_module(module), name)(**job.arguments, progress=progress)


def run_jobs(
    jobs: Sequence[Job], num_workers: int, watch: Watch, should_stop: Callable[[], bool] = lambda: False
) -> bool:
    """Run all jobs, the heaviest first; False if stopped before all were done. A refused job ends all."""
    waiting = sorted(jobs, key=lambda job: -job.weight)
    if num_workers > 1 and len(jobs) > 1:
        with Workers(min(num_workers, len(jobs))) as workers:
            return workers.run(waiting, watch, should_stop)
    try:
        for job in waiting:
            _note(job, 0.0, watch, should_stop)
            watch.on_result(job, run_job(job, lambda share, job=job: _note(job, share, watch, should_stop)))  # type: ignore[misc]
    except _StoppedError:
        return False
    return True


class _StoppedError(Exception):
    """Leaves a job in the middle."""


def _note(job: Job, share: float, watch: Watch, should_stop: Callable[[], bool]) -> None:
    watch.on_progress(job, share)
    if should_stop() and share < 1.0:
        raise _StoppedError


class Workers:
    """Processes that wait for jobs; use as a context manager."""

    def __init__(self, number: int) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._number = number

    def __enter__(self) -> "Workers":
        for _ in range(self._number):
            ours, theirs = Pipe()
            command = [sys.executable, "-m", "bertkit.studies.jobs_worker", str(theirs.fileno())]
            environment = os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
            self._processes.append(
                subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment)
            )
            theirs.close()
            self._connections.append(ours)
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.terminate()  # results are here already, and a job that was begun is not wanted any more
        for process in self._processes:
            process.wait()

    def run(self, waiting: list[Job], watch: Watch, should_stop: Callable[[], bool]) -> bool:
        """Give each worker a job, and the next when it is done."""
        under_way: dict[Connection, Job] = {}
        for connection in self._connections:
            self._give(connection, waiting, under_way)
        while under_way:
            if should_stop():
                return False
            for ready in wait(list(under_way), PATIENCE):
                assert isinstance(ready, Connection)
                self._read(ready, waiting, under_way, watch)
        return True

    @staticmethod
    def _give(connection: Connection, waiting: list[Job], under_way: dict[Connection, Job]) -> None:
        if waiting:
            under_way[connection] = waiting.pop(0)
            connection.send(under_way[connection])

    def _read(self, connection: Connection, waiting: list[Job], under_way: dict[Connection, Job], watch: Watch) -> None:
        try:
            kind, value = connection.recv()
        except (EOFError, OSError):
            raise BertkitError(f"{under_way[connection].name}: {ENDED}") from None
        job = under_way[connection]
        if kind == "progress":
            watch.on_progress(job, value)
        elif kind == "refused":
            raise BertkitError(f"{job.name}: {value}")
        else:
            del under_way[connection]
            self._give(connection, waiting, under_way)  # before the result is written, so that none is idle
            watch.on_result(job, value)
