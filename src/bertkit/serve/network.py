"""uvicorn as we run it: signals are ours, its words go to our log, and clients that never finish a header are cut."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from bertkit.serve.logs import log


class Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # one of two classes, chosen when imported
    """A connection whose requests must begin in time."""

    header_timeout = 20.0
    _timer: asyncio.TimerHandle | None = None
    _last: Any = None  # the request after which the clock was started

    def connection_made(self, transport: Any) -> None:
        """A new client: its first request is awaited."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Where a request's head is still not whole, the clock runs."""
        super().data_received(data)
        if self._is_idle() and (self._timer is None or self._last is not self.cycle):
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """No clock for who has gone."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        self._forget()
        self._last = self.cycle
        self._timer = asyncio.get_running_loop().call_later(self.header_timeout, self._check)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        if self.cycle is self._last and self._is_idle():
            self.transport.close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete


def impatient(seconds: float) -> type[Protocol]:
    """Connections with another time for a request's head."""
    return type("Protocol", (Protocol,), {"header_timeout": seconds})


class Server(uvicorn.Server):
    """uvicorn, with signals left to us."""

    def leave(self) -> None:
        """Wait for nobody: connections that are still open are cut."""
        self.should_exit = self.force_exit = True
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured, so nothing is raised again at the end."""
        yield


class JsonHandler(logging.Handler):
    """What uvicorn has to say, in our form."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        log(record.levelname.lower(), "network", message=record.getMessage())


def quiet_uvicorn() -> None:
    """Its warnings and errors alone, one JSON object a line."""
    network = logging.getLogger("uvicorn")
    network.handlers = [JsonHandler(logging.WARNING)]
    network.propagate = False
