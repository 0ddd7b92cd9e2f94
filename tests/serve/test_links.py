"""The server's end of a worker: whatever goes wrong on the line, another worker is started."""

import asyncio
from typing import Any

import pytest

from bertkit.serve import links
from bertkit.serve.links import WorkerDiedError, WorkerLink, WorkerPlan


def test_an_answer_that_makes_no_sense_ends_the_worker_and_another_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[bool] = []
    asked = asyncio.Event()

    async def spawn(self: WorkerLink) -> Any:
        self.is_up = True
        changes.append(True)
        return asyncio.StreamReader(), {}

    async def answer(reader: asyncio.StreamReader) -> Any:
        if len(changes) > 1:
            await asyncio.get_running_loop().create_future()  # the second worker is well
        await asked.wait()
        raise ValueError("no frame")

    async def run() -> None:
        link = WorkerLink(WorkerPlan(()), changes.append, 60.0)
        await link.start()
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        link._waiting[0] = waiting
        asked.set()
        with pytest.raises(WorkerDiedError):
            await asyncio.wait_for(waiting, 5)
        async with asyncio.timeout(5):
            while len(changes) < 3:
                await asyncio.sleep(0.01)
        assert link.is_up
        await link.stop(5)

    monkeypatch.setattr(WorkerLink, "_spawn", spawn)
    monkeypatch.setattr(links, "_next", answer)
    asyncio.run(run())
    assert changes == [True, False, True]
