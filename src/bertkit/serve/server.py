"""Start and stop: worker processes, the network, signals. SIGTERM takes no new work and finishes what is under way."""

import asyncio
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from uvicorn.loops.auto import auto_loop_factory

from bertkit.cores import num_cores
from bertkit.errors import BertkitError
from bertkit.serve.app import create_app
from bertkit.serve.dispatch import Dispatcher
from bertkit.serve.frames import Message
from bertkit.serve.links import WorkerLink, WorkerPlan
from bertkit.serve.logs import log
from bertkit.serve.metrics import Metrics
from bertkit.serve.models import Facts, Models, ServedModel
from bertkit.serve.network import Server, impatient, quiet_uvicorn
from bertkit.serve.service import Service
from bertkit.serve.settings import ServeSettings
from bertkit.tokenizer import Tokenizer

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
KEEP_ALIVE = 75  # seconds that an idle connection stays open
MOST_CONNECTIONS = 4096
DRAIN_STEP = 0.05  # seconds between two looks whether it is quiet
STOP_SECONDS = 5.0  # for workers to end by themselves
CUT_SECONDS = 1.0  # after a second signal: the same, and for clients to take a refusal
MOST_WAITS = 10  # times that long at most, where requests never cease


@dataclass(frozen=True)
class ServePlan:
    """Which models, where, by how many processes, for whom."""

    sources: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    shared: bool = False  # all models in each worker; else each model has workers of its own
    workers: int = 1  # processes of each group
    device: str = "auto"
    dtype: str | None = None
    threads: int | None = None  # of each worker; None: the cores, shared out
    keys: tuple[str, ...] = ()
    settings: ServeSettings = field(default_factory=ServeSettings)

    def __post_init__(self) -> None:
        if not self.sources:
            raise BertkitError("no model to serve: name a folder, a model that `bertkit info` lists, or one of the hub")
        if self.workers < 1:
            raise BertkitError(f"workers is {self.workers}; at least one must compute")
        if any(not key.strip() for key in self.keys):
            raise BertkitError("an API key is empty; leave it out or write it")
        named_sources(self.sources)

    def groups(self) -> list[WorkerPlan]:
        """One plan a group of models that share a queue."""
        models = named_sources(self.sources)
        parts = [tuple(models.items())] if self.shared else [((name, source),) for name, source in models.items()]
        threads = self.threads or max(1, num_cores() // (len(parts) * self.workers))
        return [WorkerPlan(part, self.device, self.dtype, threads) for part in parts]


def named_sources(sources: Sequence[str]) -> dict[str, str]:
    """Each source by its name: the one given as NAME=SOURCE, or the last part of its path."""
    named: dict[str, str] = {}
    for source in sources:
        name, equals, place = source.partition("=")
        if not equals:
            name, place = re.sub(r"[^A-Za-z0-9._-]", "-", Path(source).name or Path(source).resolve().name), source
        if not NAME.fullmatch(name):
            raise BertkitError(f"{name!r} cannot be a model's name in an address; write letters, digits, - and _")
        if name in named:
            raise BertkitError(f"two models are named {name!r}; name one otherwise, as in other={place}")
        named[name] = place
    return named


class Fleet:
    """The workers of a plan and the service in front of them."""

    def __init__(self, plan: ServePlan) -> None:
        self.plan, self.metrics = plan, Metrics()
        self.links: list[WorkerLink] = []

    async def start(self) -> Service:
        """Every model loaded, every queue open."""
        try:
            found = await asyncio.gather(*(self._start_group(group) for group in self.plan.groups()))
        except BaseException:
            await self.stop(STOP_SECONDS)
            raise
        return Service(Models(model for group in found for model in group), self.plan.settings, self.metrics)

    async def _start_group(self, group: WorkerPlan) -> list[ServedModel]:
        settings = self.plan.settings
        dispatcher = Dispatcher(settings.batch_tokens or 1, settings.deadline, self.metrics)
        changed = self._watcher(dispatcher)
        links = [WorkerLink(group, changed, settings.stall_timeout) for _ in range(self.plan.workers)]
        self.links += links
        facts: Message = (await asyncio.gather(*(link.start() for link in links)))[0]
        for link in links:
            dispatcher.add(link)
        if settings.batch_tokens is None:
            dispatcher.batch_tokens = min(told["batch_tokens"] for told in facts.values())
        return [
            ServedModel(name, Facts.read(told), Tokenizer.load(told["folder"]), dispatcher)
            for name, told in facts.items()
        ]

    def _watcher(self, dispatcher: Dispatcher) -> Callable[[bool], None]:
        def changed(is_up: bool) -> None:
            self.metrics.workers_up += 1 if is_up else -1
            if is_up and dispatcher.links:
                self.metrics.count("worker_restarts")
                dispatcher.pump()

        return changed

    async def stop(self, patience: float) -> None:
        """End every worker; one that has not ended after so many seconds is killed."""
        await asyncio.gather(*(link.stop(patience) for link in self.links))


def serve(plan: ServePlan) -> None:
    """Serve until SIGTERM or SIGINT."""
    loop = auto_loop_factory()  # uvloop, where it is: it also sends head and body at once
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run(plan))


async def run(plan: ServePlan) -> None:
    """Start, serve, drain, stop."""
    fleet = Fleet(plan)
    with bind(plan.host, plan.port) as listener:  # a taken port shows before models are loaded
        service = await fleet.start()
        await _listen(plan, fleet, service, listener)


async def _listen(plan: ServePlan, fleet: Fleet, service: Service, listener: socket.socket) -> None:
    quiet_uvicorn()
    server = Server(_config(plan, service))
    _take_signals(server, service)
    names = list(service.models.by_name)
    url = f"http://{plan.host}:{listener.getsockname()[1]}"
    log("info", "ready", url=url, models=names, keys=len(plan.keys), process=os.getpid())
    try:
        await server.serve([listener])
    finally:
        service.close()
        await fleet.stop(CUT_SECONDS if service.is_cut else STOP_SECONDS)
        log("info", "stopped")


def bind(host: str, port: int) -> socket.socket:
    """A socket at this address; port 0 takes any that is free."""
    made: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        if made:
            made.close()
        raise BertkitError(
            f"cannot listen on {host}:{port} ({error.strerror}); choose another --port or --host"
        ) from None
    return made


def _config(plan: ServePlan, service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(service, plan.keys),
        http=impatient(plan.settings.header_timeout),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here looks at the client's address
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=round(plan.settings.drain_timeout),
    )


def _take_signals(server: Server, service: Service) -> None:
    """The first signal drains: unhealthy and closing connections until it is quiet, then no new ones.

    The second refuses what is under way; the third leaves clients that do not take even that."""
    loop, wait = asyncio.get_running_loop(), service.settings.drain_wait

    def stop_when_quiet(end: float) -> None:
        """A connection that was made before the signal may send its request a moment later, and must not lose it."""
        now = time.monotonic()
        if now >= min(end, service.latest + wait):
            server.should_exit = True
        else:
            loop.call_later(DRAIN_STEP, stop_when_quiet, end)

    def cut() -> None:
        if service.is_cut:
            server.leave()
            return
        log("info", "cut-short", under_way=len(service.tasks))
        service.cut_short()
        server.should_exit = True
        loop.call_later(CUT_SECONDS, server.leave)

    def stop(name: str) -> None:
        if service.is_draining:
            cut()
            return
        log("info", "draining", signal=name)
        service.is_draining, service.latest = True, time.monotonic()
        stop_when_quiet(service.latest + MOST_WAITS * wait)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
