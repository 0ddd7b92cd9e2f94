"""What stands between the network and the routes: keys, body limits, slow clients, logs, and errors nobody expected.

A plain ASGI wrapper. The body is read here, bounded in size and time; a client that hangs up cancels its request, and
every request leaves one log line and one count, without a word of its text.
"""

import asyncio
import hmac
import re
import time
from collections.abc import Iterable, MutableMapping
from hashlib import sha256
from itertools import count
from secrets import token_hex
from typing import Any

from pydantic_core import to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from bertkit.serve.logs import log, where
from bertkit.serve.refusals import Refusal, stopped, too_large
from bertkit.serve.service import Service, Trace

Event = MutableMapping[str, Any]
OPEN = re.compile(r"/|/page/.*|/health|/docs|/openapi\.json")  # routes that need no key
MODEL_PATH = re.compile(r"/models/([^/]+)(/.+)")
SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
RUN, NUMBERS = token_hex(4), count(1)  # a request's id: this run of the server, and a number
GONE = 499  # in logs and metrics: the client hung up
MOST_DISCARDED = 256_000_000  # bytes of a refused body that are read, so that its client sees the refusal
DISCARD_SECONDS = 15.0


class ClientGoneError(Exception):
    """The client hung up before its request was whole."""


class Keys:
    """API keys, compared in constant time."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [sha256(key.encode()).digest() for key in keys]

    def allow(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a request bears one of the keys (or none is needed); all are compared, whichever fits."""
        if not self._digests:
            return True
        kind, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        given = bearer.strip() if kind.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        digest = sha256(given).digest()
        return sum([hmac.compare_digest(digest, known) for known in self._digests]) > 0


class Guard:
    """The application as the network sees it."""

    def __init__(self, app: ASGIApp, service: Service, keys: Keys) -> None:
        self.app, self.service, self.keys = app, service, keys
        self.settings = service.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        call = Call(scope, send, self.service, headers)
        self.service.latest = call.trace.start
        task = asyncio.current_task()
        assert task is not None
        self.service.tasks.add(task)
        try:
            await self._answer(call, headers, receive)
        except Refusal as refusal:
            await call.refuse(refusal)
        except (ClientGoneError, ConnectionError):
            call.status = GONE
        except asyncio.CancelledError:
            if not self.service.is_draining:
                raise
            task.uncancel()  # the server ends, and its client is told
            await call.refuse(stopped())
        except TimeoutError:
            call.status = GONE  # the client does not take its answer: the connection is cut
            raise ConnectionError("the client is too slow") from None
        except Exception as error:
            log("error", "unexpected", id=call.trace.id, reason=where(error))
            await call.refuse(Refusal(500, "internal", f"something went wrong here; the log has it as {call.trace.id}"))
        finally:
            self.service.tasks.discard(task)
            call.finish()

    async def _answer(self, call: "Call", headers: dict[bytes, bytes], receive: Receive) -> None:
        if self.service.is_cut:
            raise stopped()
        if not OPEN.fullmatch(call.scope["path"]) and not self.keys.allow(headers):
            await self._discard(receive, headers)
            raise Refusal(
                401, "unauthorized", "give an API key: Authorization: Bearer KEY", {"www-authenticate": "Bearer"}
            )
        body = await self._read(receive, headers)
        call.trace.num_bytes = len(body)
        await self._run(call, body, receive)

    async def _read(self, receive: Receive, headers: dict[bytes, bytes]) -> bytes:
        """The whole body, if it is allowed and comes in time."""
        most = self.settings.max_body
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            await self._discard(receive, headers)
            raise _too_many_bytes(most)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.settings.body_timeout):
                while True:
                    event = await receive()
                    if event["type"] == "http.disconnect":
                        raise ClientGoneError
                    parts.append(event.get("body", b""))
                    size += len(parts[-1])
                    is_last = not event.get("more_body", False)
                    if size > most:
                        break
                    if is_last:
                        return b"".join(parts)
        except TimeoutError:
            raise Refusal(408, "timeout", "the request's body came too slowly", {"connection": "close"}) from None
        parts.clear()
        if not is_last:
            await self._discard(receive, headers)
        raise _too_many_bytes(most)

    async def _discard(self, receive: Receive, headers: dict[bytes, bytes]) -> None:
        """Read on without keeping anything: most clients look for an answer only after all is sent."""
        if b"expect" in headers or not ({b"content-length", b"transfer-encoding"} & headers.keys()):
            return  # this client asks first
        size = 0
        try:
            async with asyncio.timeout(DISCARD_SECONDS):
                while size < MOST_DISCARDED:
                    event = await receive()
                    size += len(event.get("body", b""))
                    if not event.get("more_body", False):
                        return
        except TimeoutError:
            return

    async def _run(self, call: "Call", body: bytes, receive: Receive) -> None:
        """The routes, until they have answered or the client hangs up: then they are cancelled where they stand."""
        events = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Event:
            for event in events:
                return event
            await asyncio.get_running_loop().create_future()  # nothing more will come
            raise AssertionError

        task = asyncio.current_task()
        assert task is not None
        hung_up = asyncio.ensure_future(_until_gone(receive))

        def cancel(_: object) -> None:
            if not call.is_answered and not hung_up.cancelled():
                call.is_left = task.cancel()

        hung_up.add_done_callback(cancel)
        try:
            await self.app(call.scope, replay, call.send)
        except asyncio.CancelledError:
            if not call.is_left:
                raise
            task.uncancel()
            self.service.metrics.count("cancelled_requests")
            raise ClientGoneError from None
        finally:
            hung_up.remove_done_callback(cancel)
            hung_up.cancel()


def _too_many_bytes(most: int) -> Refusal:
    return too_large(f"a request may have {most} bytes; send fewer texts at once")


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Call:
    """One request under way: what is sent, and what is remembered of it."""

    def __init__(self, scope: Scope, send: Send, service: Service, headers: dict[bytes, bytes]) -> None:
        self.service, self._send = service, send
        self.status = 0
        self._head: Event | None = None
        self.is_answered = False  # its last byte is on its way
        self.is_left = False  # the client hung up first
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        self.trace = Trace(given if SAFE_ID.fullmatch(given) else f"{RUN}-{next(NUMBERS)}")
        self.trace.deadline = _deadline(headers, service.settings.deadline)
        self.path = scope["path"]
        self.scope = self._rewritten(scope)
        self.scope.setdefault("state", {})["trace"] = self.trace

    def _rewritten(self, scope: Scope) -> Scope:
        """/models/NAME/embed is /embed with the model NAME."""
        if found := MODEL_PATH.fullmatch(scope["path"]):
            self.trace.wanted = found[1]
            self.path = found[2]
            return {**scope, "path": found[2], "raw_path": found[2].encode()}
        return dict(scope)

    async def send(self, event: Event) -> None:
        """Pass on, with headers that every answer has; a client that does not take it in time is left.

        The head waits for the first of the body: one clock for both, and one system call where the loop can.
        """
        if event["type"] == "http.response.start":
            self.status = event["status"]
            extra = [(b"x-request-id", self.trace.id.encode())]
            if self.service.is_draining:
                extra.append((b"connection", b"close"))
            self._head = {**event, "headers": [*event.get("headers", ()), *extra]}
            return
        self.is_answered = not event.get("more_body", False)
        async with asyncio.timeout(self.service.settings.answer_timeout):
            if self._head is not None:
                head, self._head = self._head, None
                await self._send(head)
            await self._send(event)

    async def refuse(self, refusal: Refusal) -> None:
        """Tell why, unless an answer has begun."""
        if self.status:
            return
        body = to_json(refusal.body(self.path))
        headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": body})

    def finish(self) -> None:
        """One line in the log, one count in the metrics."""
        trace, seconds = self.trace, time.monotonic() - self.trace.start
        route = getattr(self.scope.get("route"), "path", "other")
        status = self.status or GONE
        self.service.metrics.request(route, trace.model, status, seconds)
        told = {
            "texts": trace.num_texts or None,
            "tokens": trace.num_tokens or None,
            "truncated": trace.num_truncated or None,
            **{f"{stage}_ms": round(1000 * spent, 2) for stage, spent in trace.seconds.items()},
        }
        log(
            "error" if status >= 500 else "info",
            "request",
            id=trace.id,
            method=self.scope["method"],
            route=route,
            model=trace.model or None,
            status=status,
            ms=round(1000 * seconds, 2),
            **told,
        )


def _deadline(headers: dict[bytes, bytes], most: float) -> float:
    """The client's own, in milliseconds, where it is shorter than the server's."""
    given = headers.get(b"x-bertkit-deadline-ms", b"")
    return min(most, max(1, int(given)) / 1000) if given.isdigit() and len(given) < 10 else most
