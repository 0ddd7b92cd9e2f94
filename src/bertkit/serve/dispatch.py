"""From requests to batches to answers: admits or refuses, fills workers, gathers results, forgets who has gone.

In: a kind of work and its inputs with their token counts. Out: one result an input. A batch whose worker died goes
again, each item by itself, so that one that kills workers takes no other along; twice is an error.
A text that is more than a batch by itself goes through a lane of its own, beside the others and not before them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bertkit.serve.frames import Array, Message
from bertkit.serve.links import Link, WorkerDiedError
from bertkit.serve.logs import log
from bertkit.serve.metrics import Metrics
from bertkit.serve.refusals import Refusal, overloaded, too_large
from bertkit.serve.waiting import Batch, Item, Ticket, WaitingRoom, turn_of

PATIENCE = 0.25  # of the deadline: how long the largest request may be passed by smaller ones
HOPE = 0.5  # of the deadline: a request that would wait longer than this is refused at once
SMOOTHING = 0.1  # of the measured speed, batch by batch
SHORT_PLACES, LONG_PLACES = 2, 1  # batches that one worker may hold: one computed, one ready; and one long text beside
WORTH = 0.25  # of a full batch: from so much on, one is made ready while another is computed, and its speed counts


@dataclass(frozen=True)
class Work:
    """What a batch has in common: model, kind and options (as sorted pairs)."""

    model: str
    kind: str
    options: tuple[tuple[str, Any], ...]


@dataclass
class Outcome:
    """A request's results in their order, and where its time went."""

    results: list[Array | Message | None]
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0


@dataclass(eq=False, slots=True)
class Request(Ticket):
    """A ticket with its results to come."""

    arrival: float = 0.0
    waiting: set[Item] = field(default_factory=set)
    missing: int = 0
    outcome: Outcome = field(default_factory=lambda: Outcome([]))
    done: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(eq=False)
class Lane:
    """Work of one size: what waits, and what workers hold of it."""

    room: WaitingRoom
    places: int  # batches that one worker may hold
    held: Counter[int] = field(default_factory=Counter)  # by worker
    tokens_under_way: int = 0

    @property
    def num_tokens(self) -> int:
        """Not yet computed."""
        return self.room.num_tokens + self.tokens_under_way


class Dispatcher:
    """The queue of one or several models and the workers that serve it."""

    def __init__(self, batch_tokens: int, deadline: float, metrics: Metrics) -> None:
        self.short = Lane(WaitingRoom(batch_tokens), SHORT_PLACES)
        self.long = Lane(WaitingRoom(batch_tokens), LONG_PLACES)
        self.lanes = (self.short, self.long)
        self.deadline, self.metrics = deadline, metrics
        self.links: list[Link] = []
        self._speed: float | None = None  # tokens a second of one worker
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def batch_tokens(self) -> int:
        """The most tokens of a batch; a text of more is long."""
        return self.short.room.batch_tokens

    @batch_tokens.setter
    def batch_tokens(self, number: int) -> None:
        for lane in self.lanes:
            lane.room.batch_tokens = number

    def add(self, link: Link) -> None:
        """One more worker."""
        self.links.append(link)

    @property
    def is_up(self) -> bool:
        """Whether some worker can take work."""
        return any(link.is_up for link in self.links)

    def expected_wait(self, lane: Lane | None = None) -> float:
        """Seconds until what waits now in a lane (that of most requests) is done; 0 while the speed is not known."""
        if self._speed is None:
            return 0.0
        num_up = sum(link.is_up for link in self.links)
        return (lane or self.short).num_tokens / (self._speed * max(1, num_up))

    def check_room(self, lengths: Sequence[int] = ()) -> None:
        """Refuse what could not be answered in time: later, or never as one request."""
        lanes = {self._lane(length) for length in lengths} or {self.short}
        wait, num_tokens = max(map(self.expected_wait, lanes)), sum(lengths)
        if wait > HOPE * self.deadline:
            raise overloaded(wait)
        if self._speed is not None and (alone := num_tokens / self._speed) > self.deadline:
            raise too_large(
                f"{num_tokens} tokens would take about {alone:.0f} s and the deadline is {self.deadline:g} s; send fewer"
            )

    def _lane(self, num_tokens: int) -> Lane:
        return self.short if num_tokens <= self.batch_tokens else self.long

    async def submit(self, work: Work, inputs: Sequence[Any], lengths: Sequence[int]) -> Outcome:
        """All results of a request; whoever awaits may be cancelled, and its items then leave the queue."""
        self.check_room(lengths)
        now = time.monotonic()
        turn = turn_of(now, sum(lengths), self.batch_tokens, PATIENCE * self.deadline)
        request = Request(turn, arrival=now, missing=len(inputs), outcome=Outcome([None] * len(inputs)))
        for place, (content, length) in enumerate(zip(inputs, lengths, strict=True)):
            item = Item(request, place, work, content, length)
            self._wait(item)
        self.pump()
        try:
            await request.done
        finally:
            if not request.gone:
                self._leave(request)
            self._show_queue()
        return request.outcome

    def _wait(self, item: Item) -> None:
        _request(item).waiting.add(item)
        self._lane(item.num_tokens).room.add(item)

    def _leave(self, request: Request) -> None:
        for lane in self.lanes:
            lane.room.leave(request, [item for item in request.waiting if self._lane(item.num_tokens) is lane])

    def pump(self) -> None:
        """Give every worker with room a batch; a second one only where it is worth it."""
        while found := self._next_batch():
            lane, link, batch = found
            # A worker that dies takes all that it holds along: who must be alone takes every place.
            taken = {one: one.places for one in self.lanes} if batch.items[0].alone else {lane: 1}
            for one, places in taken.items():
                one.held[id(link)] += places
            lane.tokens_under_way += batch.num_tokens
            task = asyncio.create_task(self._run(lane, link, batch, taken))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._show_queue()

    def _next_batch(self) -> tuple[Lane, Link, Batch] | None:
        for lane in sorted(self.lanes, key=lambda one: not one.room.num_alone):
            link = self._free_link(lane)
            if link is None:
                continue
            if batch := lane.room.take(may_be_alone=not self._num_held(link)):
                return lane, link, batch
            if lane.room.num_items:
                return None  # the next must be alone: nothing more until a worker has run empty
        return None

    def _num_held(self, link: Link) -> int:
        return sum(lane.held[id(link)] for lane in self.lanes)

    def _free_link(self, lane: Lane) -> Link | None:
        up = [link for link in self.links if link.is_up and lane.held[id(link)] < lane.places]
        link = min(up, key=lambda one: (lane.held[id(one)], self._num_held(one)), default=None)
        if link is None or not lane.room.num_items:
            return None
        busy = lane.held[id(link)] > 0
        return None if busy and lane.room.num_tokens < WORTH * self.batch_tokens else link

    async def _run(self, lane: Lane, link: Link, batch: Batch, taken: dict[Lane, int]) -> None:
        start = time.monotonic()
        for item in batch.items:
            request = _request(item)
            request.waiting.discard(item)
            request.outcome.queue_seconds = max(request.outcome.queue_seconds, start - request.arrival)
        try:
            self._settle(batch, *await link.call(_message(batch, is_long=lane is self.long)))
        except WorkerDiedError:
            self._again(batch)
        except Exception as error:  # a bug must not leave anyone waiting
            log("error", "batch-failed", reason=type(error).__name__)
            for item in batch.items:
                self._fail(item, Refusal(500, "backend", "the batch failed; try again"))
        finally:
            for one, places in taken.items():
                one.held[id(link)] -= places
            lane.tokens_under_way -= batch.num_tokens
            self.pump()

    def _settle(self, batch: Batch, message: Message, arrays: list[Array]) -> None:
        """Results to their requests; figures to the metrics."""
        seconds, numbers = message["seconds"], iter(arrays)
        self.metrics.batch(batch.num_tokens, len(batch.items), self.batch_tokens, seconds)
        if batch.num_tokens >= WORTH * self.batch_tokens:  # of a smaller one most is overhead: it would look slow
            speed = batch.num_tokens / max(seconds, 1e-6)
            self._speed = speed if self._speed is None else self._speed + SMOOTHING * (speed - self._speed)
        for item, told in zip(batch.items, message["results"], strict=True):
            request = _request(item)
            request.outcome.results[item.place] = next(numbers) if told is None else told
            request.outcome.compute_seconds = max(request.outcome.compute_seconds, seconds)
            request.missing -= 1
            if not request.missing and not request.done.done():
                request.gone = True
                request.done.set_result(None)

    def _again(self, batch: Batch) -> None:
        """A worker died with this batch: once more, each item by itself."""
        for item in batch.items:
            if item.alone:
                self._fail(item, Refusal(500, "backend", "the worker died twice on this input; it is not tried again"))
            elif not item.ticket.gone:
                item.alone = True
                self._wait(item)

    def _fail(self, item: Item, refusal: Refusal) -> None:
        request = _request(item)
        if not request.done.done():
            self._leave(request)
            request.done.set_exception(refusal)

    def _show_queue(self) -> None:
        rooms = [lane.room for lane in self.lanes]
        self.metrics.queue(id(self), sum(room.num_items for room in rooms), sum(room.num_tokens for room in rooms))


def _request(item: Item) -> Request:
    assert isinstance(item.ticket, Request)
    return item.ticket


def _message(batch: Batch, *, is_long: bool) -> Message:
    work = batch.work
    assert isinstance(work, Work)
    inputs = [item.content for item in batch.items]
    return {"model": work.model, "kind": work.kind, "options": dict(work.options), "inputs": inputs, "long": is_long}
