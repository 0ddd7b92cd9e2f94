"""Batches are nobody's business: the answer is the same whoever shared one, and who goes takes nothing along."""

import asyncio
import random
import threading
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import pytest

from bertkit.errors import LongTextWarning
from bertkit.inference.bert import Bert
from bertkit.serve.app import create_app
from bertkit.serve.frames import Array, Message
from bertkit.serve.links import WorkerDiedError
from bertkit.serve.local import LocalLink, local_service
from bertkit.serve.service import Service
from bertkit.serve.settings import ServeSettings
from tests.serve.serving import WORDS


class GatedLink(LocalLink):
    """Remembers its batches, holds them while its gate is shut, and may die."""

    def __init__(self, berts: dict[str, Bert]) -> None:
        super().__init__(berts)
        self.gate = asyncio.Event()
        self.gate.set()
        self.batches: list[Message] = []
        self.dies: Callable[[Message], bool] = lambda message: False

    async def call(self, message: Message) -> tuple[Message, list[Array]]:
        self.batches.append(message)
        await self.gate.wait()
        if self.dies(message):
            raise WorkerDiedError
        return await super().call(message)

    def texts(self) -> list[list[str]]:
        """Of every batch of sentence vectors."""
        return [[one["text"] for one in batch["inputs"]] for batch in self.batches]


Client = httpx.AsyncClient
Use = Callable[[Client, GatedLink, Service], Awaitable[None]]


def with_server(berts: dict[str, Bert], use: Use, **settings: Any) -> None:
    """Run `use` against a server whose worker it controls."""

    async def run() -> None:
        service = local_service(berts, ServeSettings(**settings))
        dispatcher, link = service.models.named(None).dispatcher, GatedLink(berts)
        dispatcher.links.clear()
        dispatcher.add(link)
        transport = httpx.ASGITransport(create_app(service))
        async with Client(transport=transport, base_url="http://here", timeout=30) as client:
            await use(client, link, service)
        service.close()

    asyncio.run(run())


async def post(client: Client, text: Any, **more: Any) -> httpx.Response:
    return await client.post("/embed", json={"inputs": text, **more})


async def waiting(service: Service, number: int) -> None:
    """Until so many items wait."""
    async with asyncio.timeout(10):
        while service.models.named(None).dispatcher.short.room.num_items != number:
            await asyncio.sleep(0.001)


def test_answers_do_not_depend_on_who_shares_the_batch(berts: dict[str, Bert]) -> None:
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(0, 40))) for _ in range(60)]
    pairs = [(a, b) for a, b in zip(texts[:20], texts[20:40], strict=True) if len((a + b).split()) < 30]
    vectors = berts["base"].embed(texts, normalize=True)
    labels = [berts["reviews"].predict(text) for text in texts[:20]]

    async def use(client: Client, link: GatedLink, service: Service) -> None:
        link.gate.clear()
        asked: list[Awaitable[httpx.Response]] = [post(client, text) for text in texts]
        asked += [client.post("/predict", json={"inputs": text}) for text in texts[:20]]
        asked += [client.post("/next-sentence", json={"inputs": list(pair)}) for pair in pairs]
        together = asyncio.gather(*asked)
        await asyncio.sleep(0.3)  # all are there, most of them waiting
        link.gate.set()
        answers = [answer.json() for answer in await together]
        assert max(len(batch["inputs"]) for batch in link.batches) > 5
        assert len(link.batches) < len(asked) / 4
        np.testing.assert_allclose([answer[0] for answer in answers[:60]], vectors, atol=1e-5)
        for answer, expected in zip(answers[60:80], labels, strict=True):
            found = {one["label"]: one["score"] for one in answer}
            assert found == pytest.approx(expected.probabilities, abs=1e-5)
        next_ = [answer[0]["probability"] for answer in answers[80:]]
        np.testing.assert_allclose(next_, berts["base"].next_sentences(pairs), atol=1e-5)

    with_server(berts, use)


def test_batches_keep_to_their_tokens(berts: dict[str, Bert]) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        link.gate.clear()
        asked = asyncio.gather(*(post(client, "my dog is cute") for _ in range(25)))
        await waiting(service, 25 - 1 - 3)  # one is computed, a quarter of a batch is ready
        link.gate.set()
        await asked
        assert [len(batch) for batch in link.texts()] == [1, 3, 10, 10, 1]  # six tokens each

    with_server(berts, use, batch_tokens=60)


def test_a_short_request_does_not_wait_behind_a_bulk(berts: dict[str, Bert]) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        link.gate.clear()
        bulk = asyncio.ensure_future(post(client, ["he likes playing in the new york fair this summer"] * 100))
        await waiting(service, 100 - 2 * 5)
        short = asyncio.ensure_future(post(client, "cute"))
        await waiting(service, 91)
        link.gate.set()
        assert (await short).status_code == 200
        assert not bulk.done()
        assert "cute" in link.texts()[2]
        assert len((await bulk).json()) == 100

    with_server(berts, use, batch_tokens=60)


class TwoLaneLink(GatedLink):
    """Holds long texts while its gate is shut, and nothing else, as a worker that computes one."""

    async def call(self, message: Message) -> tuple[Message, list[Array]]:
        if message["long"]:
            return await super().call(message)
        self.batches.append(message)
        return await LocalLink.call(self, message)


def two_lanes(berts: dict[str, Bert], service: Service) -> TwoLaneLink:
    dispatcher, link = service.models.named(None).dispatcher, TwoLaneLink(berts)
    dispatcher.links.clear()
    dispatcher.add(link)
    link.gate.clear()
    return link


LONG = " ".join(WORDS * 4)  # more than a batch by itself


def test_a_short_request_waits_for_no_long_text(berts: dict[str, Bert]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        expected = berts["base"].embed(["cute", LONG], normalize=True)

    async def use(client: Client, _: GatedLink, service: Service) -> None:
        link, dispatcher = two_lanes(berts, service), service.models.named(None).dispatcher
        first = asyncio.ensure_future(post(client, ["cute", LONG]))
        while not any(batch["long"] for batch in link.batches):
            await asyncio.sleep(0.001)
        assert (await post(client, "my dog")).status_code == 200
        assert (await post(client, ["is cute"] * 10)).status_code == 200
        dispatcher._speed = 5.0  # tokens a second: what is long takes about a minute
        late = await post(client, LONG)
        assert late.status_code == 429
        assert (await post(client, "my dog")).status_code == 200
        assert not first.done()
        link.gate.set()
        np.testing.assert_allclose((await first).json(), expected, atol=1e-5)
        assert not dispatcher.long.num_tokens
        assert not dispatcher.short.num_tokens

    with_server(berts, use, batch_tokens=60, deadline=60.0)


def test_a_long_text_that_kills_workers_takes_nobody_along(berts: dict[str, Bert]) -> None:
    async def use(client: Client, _: GatedLink, service: Service) -> None:
        link = two_lanes(berts, service)
        link.dies = lambda message: True
        first = asyncio.ensure_future(post(client, LONG))
        await asyncio.sleep(0.05)
        link.gate.set()
        others = asyncio.gather(*(post(client, "my dog") for _ in range(30)))
        assert (await first).status_code == 500
        assert {answer.status_code for answer in await others} == {200}
        assert sum(batch["long"] for batch in link.batches) == 2

    with_server(berts, use, batch_tokens=60)


def test_one_bad_input_spoils_no_other(berts: dict[str, Bert]) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        link.gate.clear()
        first = asyncio.ensure_future(post(client, "my dog"))
        await asyncio.sleep(0.05)

        def ask(word: str) -> Awaitable[httpx.Response]:
            return client.post("/words", json={"inputs": [{"word": word, "text": "my dog is cute"}]})

        asked = asyncio.gather(ask("dog"), ask("cat"), ask("cute"))
        await waiting(service, 3)
        link.gate.set()
        assert [answer.status_code for answer in await asked] == [200, 422, 200]
        assert (await first).status_code == 200
        assert len(link.batches) == 2

    with_server(berts, use)


def test_a_full_queue_refuses_with_a_time_to_come_again(berts: dict[str, Bert]) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        link.gate.clear()
        asked = asyncio.gather(*(post(client, "my dog") for _ in range(12)))
        await asyncio.sleep(0.2)
        link.gate.set()
        answers = await asked
        assert sorted(answer.status_code for answer in answers) == [200] * 8 + [429] * 4
        for answer in answers:
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["error_type"] == "overloaded"
        assert (await post(client, "my dog")).status_code == 200

    with_server(berts, use, max_requests=8)


def test_what_cannot_be_done_in_time_is_refused_at_once(berts: dict[str, Bert]) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        dispatcher = service.models.named(None).dispatcher
        dispatcher._speed = 10.0  # tokens a second
        link.gate.clear()
        first = asyncio.ensure_future(post(client, ["my dog is cute"] * 10))  # 60 tokens: six seconds
        await waiting(service, 8)  # one is computed, one is ready
        late = await post(client, "my dog")
        assert late.status_code == 429
        assert late.headers["retry-after"] == "6"
        dispatcher._speed = 1e9
        link.gate.set()
        assert (await first).status_code == 200
        dispatcher._speed = 1.0
        assert (await post(client, ["my dog is cute"] * 10)).status_code == 413

    with_server(berts, use, deadline=10.0, batch_tokens=6)


def test_deadlines_hold_and_their_work_leaves(berts: dict[str, Bert]) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        link.gate.clear()
        first = asyncio.ensure_future(post(client, "my dog"))
        await asyncio.sleep(0.05)
        late = await client.post("/embed", json={"inputs": "is cute"}, headers={"x-bertkit-deadline-ms": "50"})
        assert late.status_code == 504
        assert late.json()["error_type"] == "timeout"
        assert service.models.named(None).dispatcher.short.room.num_items == 0
        link.gate.set()
        assert (await first).status_code == 200
        assert (await post(client, "he likes")).status_code == 200
        assert link.texts() == [["my dog"], ["he likes"]]

    with_server(berts, use)


def test_who_hangs_up_leaves_the_queue(berts: dict[str, Bert]) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        link.gate.clear()
        first = asyncio.ensure_future(post(client, "my dog"))
        await asyncio.sleep(0.05)
        gone = await hang_up(client, service)
        assert gone == []  # nothing was sent to who is not there
        assert service.models.named(None).dispatcher.short.room.num_items == 0
        link.gate.set()
        await first
        assert link.texts() == [["my dog"]]
        assert "bertkit_cancelled_requests_total 1" in (await client.get("/metrics")).text

    with_server(berts, use)


async def hang_up(client: Client, service: Service) -> list[Any]:
    """A request whose client goes away while it waits; what the server sent to it."""
    app = client._transport.app  # type: ignore[attr-defined]
    sent: list[Any] = []
    body = b'{"inputs": "is cute"}'
    events = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if events:
            return events.pop()
        await waiting(service, 1)
        return {"type": "http.disconnect"}

    async def send(event: Any) -> None:
        sent.append(event)

    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "method": "POST", "path": "/embed", "raw_path": b"/embed", "query_string": b""}
    await app(
        {**scope, "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("h", 80)}, receive, send
    )
    return sent


def test_a_dead_workers_batch_goes_again_and_who_kills_workers_goes_alone(berts: dict[str, Bert]) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        link.dies = lambda message: any("poison" in one["text"] for one in message["inputs"])
        link.gate.clear()
        first = asyncio.ensure_future(post(client, "my dog"))
        await asyncio.sleep(0.05)
        asked = asyncio.gather(post(client, "he likes"), post(client, "poison"), post(client, "is cute"))
        await waiting(service, 3)
        link.gate.set()
        assert [answer.status_code for answer in await asked] == [200, 500, 200]
        assert (await first).status_code == 200
        assert ["poison"] in link.texts()

    with_server(berts, use)


class FragileLink(GatedLink):
    """Works on one batch after another, and takes all that it holds along when it dies."""

    def __init__(self, berts: dict[str, Bert]) -> None:
        super().__init__(berts)
        self.lives = 0
        self.work = asyncio.Lock()

    async def call(self, message: Message) -> tuple[Message, list[Array]]:
        life = self.lives
        await self.gate.wait()
        async with self.work:
            await asyncio.sleep(0.02)  # long enough for another to be made ready
            if self.dies(message):
                self.lives += 1
            if life != self.lives:
                raise WorkerDiedError
            return await super().call(message)


def test_who_kills_workers_takes_nobody_along_that_was_made_ready_behind_it(berts: dict[str, Bert]) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        dispatcher, fragile = service.models.named(None).dispatcher, FragileLink(berts)
        dispatcher.links.clear()
        dispatcher.add(fragile)
        fragile.dies = lambda message: any("poison" in one["text"] for one in message["inputs"])
        fragile.gate.clear()
        asked = asyncio.gather(*(post(client, text) for text in ("poison", "my dog", "is cute", "he likes")))
        await waiting(service, 2)  # one is computed, one is ready
        fragile.gate.set()
        assert [answer.status_code for answer in await asked] == [500, 200, 200, 200]

    with_server(berts, use, batch_tokens=6)


def test_a_small_batch_says_nothing_of_how_long_a_large_one_takes(berts: dict[str, Bert]) -> None:
    """A sentence on an idle worker is mostly overhead: multiplied, a bulk would look as if it could never be done."""

    async def use(client: Client, link: GatedLink, service: Service) -> None:
        call = link.call

        async def slow(message: Message) -> tuple[Message, list[Array]]:
            told, arrays = await call(message)
            return {**told, "seconds": 1.0}, arrays

        link.call = slow  # type: ignore[method-assign]
        assert (await post(client, "my dog")).status_code == 200  # 4 tokens a second
        assert (await post(client, ["my dog is cute"] * 10)).status_code == 200  # 60 tokens
        assert service.models.named(None).dispatcher._speed == pytest.approx(60.0)

    with_server(berts, use, deadline=10.0, batch_tokens=100)


def test_who_is_down_does_not_shorten_the_wait(berts: dict[str, Bert]) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        dispatcher, down = service.models.named(None).dispatcher, GatedLink(berts)
        down.is_up = False
        dispatcher.add(down)
        dispatcher._speed = 10.0
        dispatcher.short.room.num_tokens = 100
        assert dispatcher.expected_wait() == 10.0

    with_server(berts, use)


def test_a_bug_leaves_nobody_waiting(berts: dict[str, Bert]) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        async def nothing(message: Message) -> tuple[Message, list[Array]]:
            return {"seconds": 0.1, "results": []}, []

        link.call = nothing  # type: ignore[method-assign]
        assert (await post(client, "my dog")).status_code == 500

    with_server(berts, use, deadline=5.0)


@pytest.mark.parametrize("route", ["/embed", "/tokenize"])
def test_tokenizing_counts_as_under_way_and_ends_at_the_deadline(berts: dict[str, Bert], route: str) -> None:
    async def use(client: Client, link: GatedLink, service: Service) -> None:
        go = threading.Event()
        held = service._threads.run(go.wait, is_short=False)
        headers = {"x-bertkit-deadline-ms": "200"}
        first = asyncio.ensure_future(client.post(route, json={"inputs": "my dog"}, headers=headers))
        await asyncio.sleep(0.05)
        assert "bertkit_requests_under_way 1" in (await client.get("/metrics")).text
        assert (await client.post(route, json={"inputs": "my dog"})).status_code == 429
        late = await asyncio.wait_for(first, 5)
        assert late.status_code == 504
        assert "within 0.2 s" in late.json()["error"]
        go.set()
        await held
        assert (await client.post(route, json={"inputs": "my dog"})).status_code == 200

    with_server(berts, use, max_requests=1, tokenizer_threads=1)
