"""A worker answers every batch, and a long text holds up no other."""

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bertkit.serve.frames import Message, receive, to_frame
from bertkit.serve.worker import answer_all
from tests.serve.serving import tiny


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


@pytest.mark.parametrize("loads", [True, False])
def test_a_server_that_is_gone_is_no_failure(loads: bool, tmp_path: Path) -> None:
    """Stopped while models are loaded or a batch is computed, the worker ends without a word."""
    tiny(1, ("pooler",)).save(tmp_path / "model")
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "bertkit.serve.worker", str(theirs.fileno())]
    with theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE) as worker, ours:
        theirs.close()
        plan = {"models": [("one", str(tmp_path / "model"))], "device": "cpu", "dtype": None, "threads": 1}
        ours.sendall(to_frame(plan))
        if not loads:
            assert receive(ours) is not None
            batch = {
                "id": 1,
                "model": "one",
                "kind": "embed",
                "options": {},
                "inputs": [[[2, 3]] * 2] * 99,
                "long": False,
            }
            ours.sendall(to_frame(batch) * 3)
        ours.close()
        assert (worker.communicate(timeout=60)[1], worker.returncode) == (b"", 0)


def _next_id(connection: socket.socket) -> int:
    got = receive(connection)
    assert got is not None
    number: int = got[0]["id"]
    return number
