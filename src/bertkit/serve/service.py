"""One request's way: admitted, tokenized in a thread, queued, computed, gathered. Routes call `perform`; no HTTP here."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from bertkit.errors import BertkitError, LongTextError
from bertkit.serve.dispatch import Outcome, Work
from bertkit.serve.frames import Array
from bertkit.serve.logs import log
from bertkit.serve.metrics import Metrics
from bertkit.serve.models import Models, ServedModel
from bertkit.serve.reading import Prepared
from bertkit.serve.refusals import Refusal, invalid, out_of_time, overloaded, too_large
from bertkit.serve.settings import ServeSettings
from bertkit.serve.tokenizing import TokenizingThreads

T = TypeVar("T")
FLOATS_ON_LOOP = 20_000  # numbers that become JSON at once; more, and a thread does it
SHORT_BODY = 4096  # bytes of a request that is tokenized together with others


@dataclass
class Trace:
    """What is known of one request, for its log line, its headers and the metrics; never a text."""

    id: str
    start: float = field(default_factory=time.monotonic)
    deadline: float = 30.0  # seconds from the start
    wanted: str | None = None  # the model named in the path
    num_bytes: int = 0  # of the body
    model: str = ""
    num_texts: int = 0
    num_tokens: int = 0
    num_truncated: int = 0
    num_windowed: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # of tokenize, queue and compute

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.start + self.deadline - time.monotonic()


class Service:
    """Everything that routes need."""

    def __init__(self, models: Models, settings: ServeSettings, metrics: Metrics) -> None:
        self.models, self.settings, self.metrics = models, settings, metrics
        self.is_draining = False
        self.is_cut = False  # nothing is waited for any more
        self.tasks: set[asyncio.Task[Any]] = set()  # the requests under way
        self.latest = 0.0  # when the last request came
        self._threads = TokenizingThreads(settings.tokenizer_threads)

    @property
    def is_up(self) -> bool:
        """Whether every model has a worker and new work is welcome."""
        return not self.is_draining and all(model.dispatcher.is_up for model in self.models)

    async def perform(
        self, trace: Trace, name: str | None, kind: str, prepare: Callable[..., Prepared], *details: Any
    ) -> list[Any]:
        """The results of `prepare(model, *details)`: arrays or JSON texts."""
        async with self.admitted(trace, name, kind) as model:
            model.dispatcher.check_room()
            prepared = await self.in_thread(trace, prepare, model, *details)
            self.note(trace, prepared)
            work = Work(model.name, kind, tuple(sorted(prepared.options.items())))
            outcome = await model.dispatcher.submit(work, prepared.inputs, prepared.lengths)
        self._time(trace, "queue", outcome.queue_seconds)
        self._time(trace, "compute", outcome.compute_seconds)
        return self._results(trace, outcome)

    @asynccontextmanager
    async def admitted(self, trace: Trace, name: str | None, kind: str) -> AsyncIterator[ServedModel]:
        """The model that is meant, unless too much is under way; what is done with it counts, and ends in time."""
        if trace.wanted is not None and name is not None and name != trace.wanted:
            raise invalid("the path and the field `model` name two models; leave one out")
        model = self.models.pick(trace.wanted if trace.wanted is not None else name, kind)
        trace.model = model.name
        if self.metrics.under_way >= self.settings.max_requests:
            raise overloaded(model.dispatcher.expected_wait())
        self.metrics.under_way += 1
        try:
            async with asyncio.timeout(trace.left()):
                yield model
        except TimeoutError:
            raise out_of_time(trace.deadline) from None
        finally:
            self.metrics.under_way -= 1

    async def in_thread(self, trace: Trace, work: Callable[..., T], *details: Any) -> T:
        """Tokenizer's work, off the event loop; what it refuses is told to the client."""
        start = time.monotonic()
        try:
            found: T = await self._threads.run(partial(work, *details), is_short=trace.num_bytes <= SHORT_BODY)
            return found
        except LongTextError as error:
            raise too_large(str(error)) from None
        except BertkitError as error:
            raise invalid(str(error)) from None
        finally:
            self._time(trace, "tokenize", time.monotonic() - start)

    def note(self, trace: Trace, prepared: Prepared) -> None:
        """Remember how much is asked for, and refuse too much of it."""
        trace.num_texts, trace.num_tokens = len(prepared.inputs), sum(prepared.lengths)
        trace.num_truncated, trace.num_windowed = prepared.num_truncated, prepared.num_windowed
        if trace.num_texts > (most := self.settings.max_texts):
            raise too_large(f"a request may have {most} texts and this one has {trace.num_texts}; send several")
        if trace.num_tokens > (most := self.settings.max_request_tokens):
            raise too_large(f"a request may have {most} tokens and this one has {trace.num_tokens}; send several")

    def _time(self, trace: Trace, stage: str, seconds: float) -> None:
        trace.seconds[stage] = trace.seconds.get(stage, 0.0) + seconds
        self.metrics.stage(stage, seconds)

    def _results(self, trace: Trace, outcome: Outcome) -> list[Any]:
        found: list[Any] = []
        num_cut = 0
        for result in outcome.results:
            if not isinstance(result, dict):
                found.append(result)
            elif "error" in result:
                raise _refusal(result["error"], result["type"], len(found), len(outcome.results))
            else:
                num_cut += bool(result["cut"])
                found.append(result["json"])
        trace.num_truncated = max(trace.num_truncated, num_cut)  # known beforehand, or by the worker alone
        if trace.num_truncated:
            self.metrics.count("truncated_texts", trace.num_truncated)
        return found

    async def write(self, vectors: list[Array], to_text: Callable[[list[Array]], bytes]) -> bytes:
        """Vectors as JSON; many of them in a thread."""
        if sum(vector.size for vector in vectors) <= FLOATS_ON_LOOP:
            return to_text(vectors)
        found: bytes = await self._threads.run(partial(to_text, vectors), is_short=False)
        return found

    def cut_short(self) -> None:
        """Refuse all that is under way and all that comes."""
        self.is_cut = True
        for task in self.tasks:
            task.cancel()

    def close(self) -> None:
        """End the threads."""
        self._threads.close()


def _refusal(message: str, kind: str, place: int, num: int) -> Refusal:
    if kind == "backend":
        log("error", "input-failed", reason=message)
        return Refusal(500, "backend", "the model failed on this input")
    which = "" if num == 1 else f"input {place + 1} of {num}: "
    return too_large(which + message) if kind == "too_long" else invalid(which + message)
