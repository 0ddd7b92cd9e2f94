"""Tokenizer's work off the event loop: short requests that arrive together share one turn of a thread.

In: a function and whether it is short. Out: its result, or what it raised, as a future. Handing work to a thread and
waking the loop again takes longer than tokenizing a sentence; long requests go by themselves, and hold up nobody.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]


class TokenizingThreads:
    """A few threads, and the short work that waits for this turn of the loop to end."""

    def __init__(self, num_threads: int) -> None:
        self._threads = ThreadPoolExecutor(num_threads, "tokenize")
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    def run(self, work: Callable[[], Any], *, is_short: bool) -> "asyncio.Future[Any]":
        """What `work` gives, from a thread."""
        loop = asyncio.get_running_loop()
        if not is_short:
            return loop.run_in_executor(self._threads, work)
        if not self._waiting:
            loop.call_soon(self._hand_over, loop)
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((work, future))
        return future

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """All that waits, to one thread; as many bundles as threads would only pass the loop's lock around."""
        bundle, self._waiting = self._waiting, []
        try:
            self._threads.submit(_work_off, loop, bundle)
        except RuntimeError:  # the server has stopped
            for _, future in bundle:
                future.cancel()

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _work_off(loop: asyncio.AbstractEventLoop, bundle: list[tuple[Callable[[], Any], "asyncio.Future[Any]"]]) -> None:
    outcomes: list[Outcome] = []
    for work, future in bundle:
        if future.cancelled():
            continue
        try:
            outcomes.append((future, work(), None))
        except Exception as error:
            outcomes.append((future, None, error))
    loop.call_soon_threadsafe(_deliver, outcomes)


def _deliver(outcomes: list[Outcome]) -> None:
    for future, result, error in outcomes:
        if future.done():
            continue  # its client has gone meanwhile
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
