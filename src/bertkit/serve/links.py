"""The server's end of a worker process: start it, send batches, take results, start it again when it dies.

A batch that is under way when a worker dies fails with WorkerDiedError; who sent it may send it again.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from bertkit.errors import BertkitError
from bertkit.serve.frames import LENGTHS, Array, Message, from_frame, to_frame
from bertkit.serve.logs import log, where

# oneDNN keeps what it made for each shape of batch; no two are alike here, so that a worker would grow by half.
WORKER_ENVIRONMENT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16"}
LONGEST_PAUSE = 10.0  # seconds between attempts to start a worker that keeps dying


class WorkerDiedError(Exception):
    """The process ended before it answered."""


@dataclass(frozen=True)
class WorkerPlan:
    """Which models a process holds, and what it may use."""

    models: tuple[tuple[str, str], ...]  # name and source
    device: str = "auto"
    dtype: str | None = None
    threads: int = 1

    def message(self) -> Message:
        """As the worker reads it."""
        return {"models": self.models, "device": self.device, "dtype": self.dtype, "threads": self.threads}


class Link(Protocol):
    """Where batches go."""

    is_up: bool

    async def call(self, message: Message) -> tuple[Message, list[Array]]:
        """One batch to its results."""


class WorkerLink:
    """A process of its own, kept alive."""

    def __init__(self, plan: WorkerPlan, on_change: Callable[[bool], None], stall_timeout: float) -> None:
        self.plan, self.on_change, self.stall_timeout = plan, on_change, stall_timeout
        self.is_up = False
        self.process: subprocess.Popen[bytes] | None = None
        self._ids = count()
        self._waiting: dict[int, asyncio.Future[tuple[Message, list[Array]]]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._tender: asyncio.Task[None] | None = None

    async def start(self) -> Message:
        """Load the models; raises where they cannot be loaded."""
        reader, facts = await self._spawn()
        self._tender = asyncio.create_task(self._tend(reader))
        return facts

    async def call(self, message: Message) -> tuple[Message, list[Array]]:
        """Send a batch and wait for its results; a worker that stalls is killed, and comes back."""
        if self._writer is None or not self.is_up:
            raise WorkerDiedError
        number = next(self._ids)
        future: asyncio.Future[tuple[Message, list[Array]]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._writer.write(to_frame({**message, "id": number}))
            async with asyncio.timeout(self.stall_timeout):
                return await future
        except TimeoutError:
            log("error", "worker-stalled", seconds=self.stall_timeout)
            self._kill()
            raise WorkerDiedError from None
        finally:
            self._waiting.pop(number, None)

    async def stop(self, patience: float) -> None:
        """Hang up, which ends the process; kill it where that is not enough after some seconds."""
        if self._tender:
            self._tender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._tender
        self._hang_up()
        if self.process:
            try:
                await asyncio.to_thread(self.process.wait, patience)
            except subprocess.TimeoutExpired:
                self._kill()

    async def _spawn(self) -> tuple[asyncio.StreamReader, Message]:
        ours, theirs = socket.socketpair()
        # Threads are set before any library reads them; several workers must not fight over the cores.
        environment = {**WORKER_ENVIRONMENT, **os.environ, "OMP_NUM_THREADS": str(self.plan.threads)}
        command = [sys.executable, "-m", "bertkit.serve.worker", str(theirs.fileno())]
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno()
        )
        theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.write(to_frame(self.plan.message()))
        try:
            message, _ = await _next(reader)
        except WorkerDiedError:
            raise BertkitError("a worker ended while it loaded its models; is there enough memory?") from None
        if "error" in message:
            raise BertkitError(message["error"])
        self.is_up = True
        self.on_change(True)
        facts: Message = message["models"]
        return reader, facts

    async def _tend(self, reader: asyncio.StreamReader) -> None:
        """Hand out results; when the process is gone, start another."""
        while True:
            try:
                while True:
                    message, arrays = await _next(reader)
                    future = self._waiting.pop(message["id"], None)
                    if future and not future.done():
                        future.set_result((message, arrays))
            except Exception as error:  # also an answer that makes no sense: who is not tended would seem up for ever
                self._lost(error)
            reader = await self._restart()

    async def _restart(self) -> asyncio.StreamReader:
        pause = 0.0
        while True:
            await asyncio.sleep(pause)
            try:
                reader, _ = await self._spawn()
                log("info", "worker-restarted", process=self.process.pid if self.process else None)
                return reader
            except (BertkitError, OSError) as error:
                self._hang_up()
                pause = min(LONGEST_PAUSE, 2 * pause + 0.5)
                log("error", "worker-does-not-start", reason=str(error), next_try_seconds=pause)

    def _lost(self, error: Exception) -> None:
        code = self.process.poll() if self.process else None
        reason = None if isinstance(error, WorkerDiedError) else where(error)
        log("error", "worker-died", exit_code=code, under_way=len(self._waiting), reason=reason)
        self._hang_up()
        self._kill()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(WorkerDiedError())
        self._waiting.clear()
        self.on_change(False)

    def _hang_up(self) -> None:
        self.is_up = False
        if self._writer:
            self._writer.close()
            self._writer = None

    def _kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


async def _next(reader: asyncio.StreamReader) -> tuple[Message, list[Array]]:
    try:
        size, head_size = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
        return from_frame(head_size, await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        raise WorkerDiedError from None
