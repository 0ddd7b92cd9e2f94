"""A worker answers every batch, and a long text holds up no other."""

import socket
import threading
from typing import Any

import pytest

from bertkit.serve.frames import Message, receive, to_frame
from bertkit.serve.worker import answer_all


def test_short_batches_are_answered_while_a_long_text_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def answer(berts: Any, batch: Message) -> bytes:
        assert not batch["long"] or go.wait(30)
        return to_frame({"id": batch["id"]})

    monkeypatch.setattr("bertkit.serve.worker.answer", answer)
    ours, theirs = socket.socketpair()
    worker = threading.Thread(target=answer_all, args=(theirs, {}))
    worker.start()
    ours.settimeout(30)
    with ours, theirs:
        for number, is_long in enumerate((True, False, True, False)):
            ours.sendall(to_frame({"id": number, "long": is_long}))
        assert [_next_id(ours), _next_id(ours)] == [1, 3]
        go.set()
        assert [_next_id(ours), _next_id(ours)] == [0, 2]
        ours.shutdown(socket.SHUT_WR)
        worker.join(30)
        assert not worker.is_alive()


def _next_id(connection: socket.socket) -> int:
    got = receive(connection)
    assert got is not None
    number: int = got[0]["id"]
    return number
