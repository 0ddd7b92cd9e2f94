"""Jobs on several processes that may share one GPU: small models leave it idle. Any study can use it.

A job names a function of the package, `module:function`, which is called with the job's arguments and a progress
callback and returns plain values. One worker: everything happens in this process, one job after another. Results are
handed out as they come; whoever stores them can start again and leave the finished ones out. A job may wait for
another; with `finish_first` it then goes before those that wait for none, so that little is half done at any moment.
A refused job ends all, or with `on_refused` those alone that wait for it.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections import Counter
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
Refused = Callable[["Job", str], None]  # told of a job that cannot be done, and why


@dataclass(frozen=True)
class Job:
    """One piece of work; `weight` is how long it takes beside the others, roughly."""

    name: str
    function: str  # module:function
    arguments: Mapping[str, Any] = field(repr=False)
    weight: float = 1.0
    after: str = ""  # the name of a job that must be done before
    kind: str = ""  # of which only so many may be under way at a time


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


class Queue:
    """Jobs that wait: the heaviest first; or first those that waited for another and now can begin."""

    def __init__(self, jobs: Sequence[Job], most: Mapping[str, int], *, finish_first: bool = False) -> None:
        self._waiting = sorted(jobs, key=lambda job: (finish_first and not job.after, -job.weight))
        self._open = {job.name for job in jobs}  # a job that is not here is done
        self._under_way: Counter[str] = Counter()
        self._most = most

    def take(self) -> Job | None:
        """The next that may begin; None: those under way come first, or nothing waits."""
        for place, job in enumerate(self._waiting):
            is_room = job.kind not in self._most or self._under_way[job.kind] < self._most[job.kind]
            if is_room and job.after not in self._open:
                self._under_way[job.kind] += 1
                return self._waiting.pop(place)
        return None

    def note_done(self, job: Job) -> None:
        """Others may have waited for it."""
        self._open.discard(job.name)
        self._under_way[job.kind] -= 1

    def note_refused(self, job: Job) -> None:
        """Those that wait for it will not begin."""
        self._under_way[job.kind] -= 1


def run_jobs(
    jobs: Sequence[Job],
    num_workers: int,
    watch: Watch,
    should_stop: Callable[[], bool] = lambda: False,
    most: Mapping[str, int] | None = None,
    *,
    finish_first: bool = False,
    on_refused: Refused | None = None,
) -> bool:
    """Run all jobs, `most` of a kind at a time; False if stopped before all were done or refused."""
    queue = Queue(jobs, most or {}, finish_first=finish_first)
    if jobs and should_stop():
        return False
    if num_workers > 1 and len(jobs) > 1:
        with Workers(min(num_workers, len(jobs))) as workers:
            return workers.run(queue, watch, should_stop, on_refused)
    try:
        while job := queue.take():
            _run_here(job, queue, watch, should_stop, on_refused)
    except StoppedError:
        return False
    return True


def _run_here(
    job: Job, queue: Queue, watch: Watch, should_stop: Callable[[], bool], on_refused: Refused | None
) -> None:
    _note(job, 0.0, watch, should_stop)
    try:
        result = run_job(job, lambda share: _note(job, share, watch, should_stop))
    except BertkitError as error:
        if on_refused is None:
            raise
        queue.note_refused(job)
        on_refused(job, str(error))
        return
    watch.on_result(job, result)
    queue.note_done(job)


class StoppedError(Exception):
    """Leaves a job in the middle, out of its progress callback; one that has something to save may do so first."""


def _note(job: Job, share: float, watch: Watch, should_stop: Callable[[], bool]) -> None:
    watch.on_progress(job, share)
    if should_stop() and share < 1.0:
        raise StoppedError


def _say_no_more(connection: Connection) -> None:
    """The other end hears that no job will come, and can still be heard."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_WR)


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
            _say_no_more(connection)
        for process in self._processes:
            process.terminate()  # results are here already, and a job that was begun is not wanted any more
        for process in self._processes:
            process.wait()  # a run that is trained saves itself first, and still tells how far it is
        for connection in self._connections:
            connection.close()

    def run(
        self, queue: Queue, watch: Watch, should_stop: Callable[[], bool], on_refused: Refused | None = None
    ) -> bool:
        """Give each worker a job, and the next when it is done."""
        under_way: dict[Connection, Job] = {}
        self._give(queue, under_way)
        while under_way:
            if should_stop():
                return False
            for ready in wait(list(under_way), PATIENCE):
                assert isinstance(ready, Connection)
                try:
                    self._read(ready, queue, under_way, watch, on_refused)
                except BertkitError:
                    if should_stop():  # as from `timeout`, which ends the workers too
                        return False
                    raise
        return True

    def _give(self, queue: Queue, under_way: dict[Connection, Job]) -> None:
        """Something to do for every worker that is idle, as far as there is something."""
        for connection in self._connections:
            if connection not in under_way and (job := queue.take()):
                under_way[connection] = job
                try:
                    connection.send(job)
                except OSError:
                    raise BertkitError(f"{job.name}: {ENDED}") from None

    def _read(
        self,
        connection: Connection,
        queue: Queue,
        under_way: dict[Connection, Job],
        watch: Watch,
        on_refused: Refused | None,
    ) -> None:
        try:
            kind, value = connection.recv()
        except (EOFError, OSError):
            raise BertkitError(f"{under_way[connection].name}: {ENDED}") from None
        job = under_way[connection]
        if kind == "progress":
            watch.on_progress(job, value)
        elif kind == "refused":
            if on_refused is None:
                raise BertkitError(f"{job.name}: {value}")
            del under_way[connection]
            queue.note_refused(job)
            self._give(queue, under_way)
            on_refused(job, value)
        else:
            del under_way[connection]
            queue.note_done(job)
            self._give(queue, under_way)  # before the result is written, so that none is idle
            watch.on_result(job, value)
