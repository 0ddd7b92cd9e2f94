"""Runs of several callers share the engine's threads."""

import threading

import pytest

from bertkit.inference.engines import session
from bertkit.inference.engines.session import Sessions


def made(monkeypatch: pytest.MonkeyPatch, threads: int) -> Sessions:
    monkeypatch.setattr(session, "open_session", lambda graph, threads: None)
    return Sessions(lambda boxes: b"", threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_item_is_worked_on_and_errors_come_out(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    sessions = made(monkeypatch, threads)
    seen: list[int] = []
    sessions.run_all(seen.append, range(50))
    assert sorted(seen) == list(range(50))
    with pytest.raises(ZeroDivisionError):
        sessions.run_all(lambda item: seen.append(1 // item), [1, 0, 1])


def test_a_small_call_does_not_wait_for_all_of_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions, go = made(monkeypatch, 2), threading.Semaphore(0)
    seen: list[int] = []

    def slow(item: int) -> None:
        assert go.acquire(timeout=30)
        seen.append(item)

    large = threading.Thread(target=sessions.run_all, args=(slow, range(100)))
    large.start()
    small = threading.Thread(target=sessions.run_all, args=(lambda item: None, range(1)))
    small.start()
    for _ in range(20):
        go.release()
    small.join(30)
    assert not small.is_alive()
    assert len(seen) <= 20
    for _ in range(80):
        go.release()
    large.join(30)
    assert len(seen) == 100
