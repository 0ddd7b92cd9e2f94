"""Tokenizing in threads: every request gets its own result or error, together or alone, and the gone are passed over."""

import asyncio
import threading
from typing import Any

import pytest

from bertkit.inference.bert import Bert
from bertkit.serve.tokenizing import TokenizingThreads
from bertkit.tokenizer.wordpiece import LONE_CHARACTERS
from tests.serve.serving import SENTENCES


def refuse() -> None:
    raise ValueError("no")


def test_short_work_shares_a_turn_and_each_gets_its_own() -> None:
    async def run() -> list[Any]:
        threads = TokenizingThreads(2)
        futures = [threads.run(lambda n=n: (n, threading.get_ident()), is_short=True) for n in range(20)]  # type: ignore[misc]
        futures.insert(3, threads.run(refuse, is_short=True))
        found = await asyncio.gather(*futures, return_exceptions=True)
        threads.close()
        return found

    found = asyncio.run(run())
    assert isinstance(found.pop(3), ValueError)
    assert [number for number, _ in found] == list(range(20))
    assert len({thread for _, thread in found}) == 1
    assert found[0][1] != threading.get_ident()


def test_long_work_holds_up_no_short_work() -> None:
    async def run() -> tuple[str, bool]:
        threads, go = TokenizingThreads(2), threading.Event()
        long = threads.run(lambda: go.wait(10), is_short=False)
        short = await threads.run(lambda: "short", is_short=True)
        was_first = not long.done()
        go.set()
        await long
        threads.close()
        return short, was_first

    assert asyncio.run(run()) == ("short", True)


def test_work_of_who_has_gone_is_passed_over() -> None:
    async def run() -> tuple[list[str], str]:
        threads, done = TokenizingThreads(1), list[str]()
        gone = threads.run(lambda: done.append("gone"), is_short=True)
        stays = threads.run(lambda: "stays", is_short=True)
        gone.cancel()
        found = await stays
        threads.close()
        return done, found

    assert asyncio.run(run()) == ([], "stays")


def test_work_after_the_end_is_cancelled() -> None:
    async def run() -> None:
        threads = TokenizingThreads(1)
        threads.close()
        await threads.run(lambda: "late", is_short=True)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


def test_a_lone_long_text_has_the_tokens_that_it_has_among_others(berts: dict[str, Bert]) -> None:
    """It is read by the library's threads, so that the event loop goes on; a lone short one is not."""
    tokenizer = berts["base"].tokenizer
    text = SENTENCES * (LONE_CHARACTERS // len(SENTENCES) + 1)
    for one in (text, text[:LONE_CHARACTERS]):
        assert tokenizer.encode_ids([one]) == tokenizer.encode_ids([one, "my dog"])[:1]
        assert tokenizer.encode(one).offsets == tokenizer.encode_batch([one, "my dog"])[0][0].offsets
