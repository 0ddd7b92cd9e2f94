"""The program itself: workers that are killed come back, SIGTERM loses nothing, clients may be as bad as they like."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from bench.serve_load import load

from bertkit.inference.bert import Bert
from bertkit.serve.server import ServePlan, named_sources
from tests.cli.running import refusal, refused, spawn
from tests.serve.serving import WORDS, Running, running, wait_until_well

REQUEST = b"POST /embed HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def folder(berts: dict[str, Bert], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("served")
    for name in ("base", "reviews"):
        berts[name].save(made / name)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    """Two models in two workers; clients have two seconds for what they send."""
    options = ("--client-timeout", "2", "--max-body", "1000000")
    with running(folder, str(folder / "base"), f"second={folder / 'reviews'}", *options) as started:
        yield started


def test_both_models_answer_as_offline(server: Running, berts: dict[str, Bert]) -> None:
    assert len(server.children()) == 2
    found = server.client.post("/embed", json={"inputs": ["my dog", "is cute"], "normalize": False}).json()
    np.testing.assert_allclose(found, berts["base"].embed(["my dog", "is cute"]), atol=1e-5)
    (best, *_) = server.client.post("/predict", json={"inputs": "my dog"}).json()
    assert best["label"] == berts["reviews"].predict("my dog").label


def test_a_killed_worker_comes_back_and_nobody_notices(server: Running) -> None:
    before = server.children()
    done = threading.Event()

    def ask(_: int) -> set[int]:
        statuses = set()
        with httpx.Client(base_url=str(server.client.base_url), timeout=60) as client:
            while not done.is_set():
                statuses.add(client.post("/embed", json={"inputs": "my dog is cute"}).status_code)
        return statuses

    with ThreadPoolExecutor(4) as pool:
        asking = pool.map(ask, range(4))
        time.sleep(0.2)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        wait_until_well(server)
        done.set()
        assert set().union(*asking) == {200}
    assert not set(before) & set(server.children())
    assert "bertkit_worker_restarts_total 2" in server.client.get("/metrics").text
    assert [line for line in server.log() if line["event"] == "worker-died"]


def test_slow_clients_are_cut_and_others_go_on(server: Running) -> None:
    slow = {
        "silent": b"",
        "half a head": b"POST /embed HT",
        "half a body": REQUEST + b"content-length: 50\r\n\r\n{",
        "half a second head": b"GET /health HTTP/1.1\r\nhost: here\r\n\r\n",
    }
    opened = {name: server.connect() for name in slow}
    for name, start in slow.items():
        opened[name].sendall(start)
    assert opened["half a second head"].recv(12) == b"HTTP/1.1 200"
    opened["half a second head"].sendall(b"POST /embed HT")
    assert server.client.post("/embed", json={"inputs": "my dog"}).status_code == 200
    answers = {name: _read_all(connection) for name, connection in opened.items()}
    assert answers["silent"] == answers["half a head"] == b""
    assert answers["half a body"].startswith(b"HTTP/1.1 408")
    assert answers["half a second head"].count(b"\r\n\r\n") == 1  # the end of the first answer, then the connection's


def _read_all(connection: socket.socket) -> bytes:
    parts = []
    with connection:
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_a_client_that_takes_no_answer_is_cut(server: Running) -> None:
    """Many answers are asked for and none is read: the connection ends, and the server is well."""
    texts = '", "'.join(["my dog is cute"] * 200)
    body = f'{{"inputs": ["{texts}"]}}'.encode()
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(100):
            try:
                connection.sendall(REQUEST + f"content-length: {len(body)}\r\n\r\n".encode() + body)
            except OSError:
                break
        assert server.client.post("/embed", json={"inputs": "my dog"}).status_code == 200


def test_a_hundred_megabytes(server: Running) -> None:
    before = _resident(server.process.pid)

    def body() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 1_000_000

    size = {"content-length": "100000000"}
    assert server.client.post("/embed", content=body(), headers=size).status_code == 413
    assert server.client.post("/embed", content=body()).status_code == 413  # in chunks, of no known length
    assert _resident(server.process.pid) < before + 30_000_000


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_what_is_no_http_is_refused(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no http \r\n\r\n")
        assert b"400" in connection.recv(1000)
    assert server.log()  # every line is still JSON


def test_overload_is_answered_or_refused_and_sigterm_loses_nothing(folder: Path) -> None:
    """The short form of `make load`: more at once than may be; then the end, in the middle of a load."""
    with running(folder, str(folder / "base"), "--shared", "--max-requests", "8", "--deadline", "20") as server:
        workers = server.children()
        texts = [" ".join(WORDS[i % 40 : i % 40 + 1 + i % 9]) for i in range(1500)]
        found = load(
            server.port, texts, connections=24, rate=500, watch=[server.process.pid, *workers], marks=[500, 1500]
        )
        assert found.broken == []
        assert set(found.statuses) <= {200, 429}
        assert found.statuses.total() == 1500
        assert found.statuses[200] >= 8
        assert found.quantile(0.99) < 20
        assert found.resident[1500] < 1.1 * found.resident[500]
        _end_under_load(server, texts[:200])
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def _end_under_load(server: Running, texts: list[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(load, server.port, texts, connections=len(texts))
        while "bertkit_requests_under_way 0" in server.client.get("/metrics").text and not asked.done():
            pass
        code = server.stop()
        found = asked.result()
    assert code == 0
    assert found.broken == []
    assert set(found.statuses) <= {200, 429}
    events = [line["event"] for line in server.log()]
    assert events.index("draining") < events.index("stopped")


def test_a_second_sigterm_refuses_what_is_under_way_and_ends_at_once(folder: Path) -> None:
    """The worker stands still, so that nothing is answered before; one client is still sending its request."""
    with running(folder, str(folder / "base")) as server, server.connect() as half, ThreadPoolExecutor(2) as pool:
        half.sendall(REQUEST + b"content-length: 50\r\n\r\n{")
        (worker,) = server.children()
        os.kill(worker, signal.SIGSTOP)
        paths = ("/embed", "/v1/embeddings")
        asked = [pool.submit(httpx.post, _url(server, path), json=_body(path), timeout=60) for path in paths]
        while "bertkit_requests_under_way 2" not in server.client.get("/metrics").text:
            time.sleep(0.05)
        server.process.terminate()
        while not any(line["event"] == "draining" for line in server.log()):
            time.sleep(0.05)
        start = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - start < 4
        answers = [one.result() for one in asked]
        assert [answer.status_code for answer in answers] == [503, 503]
        assert answers[0].json()["error_type"] == answers[1].json()["error"]["type"] == "stopped"
        head, _, body = _read_all(half).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503")
        assert json.loads(body)["error_type"] == "stopped"
        assert [line["status"] for line in server.log() if line["event"] == "request"][-3:] == [503] * 3


def _url(server: Running, path: str) -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def _body(path: str) -> dict[str, str]:
    return {"input" if path.startswith("/v1") else "inputs": "my dog is cute"}


def test_models_that_cannot_be_loaded_are_one_line(tmp_path: Path, folder: Path) -> None:
    done = spawn("serve", str(tmp_path), "--device", "cpu")
    assert str(tmp_path) in refused(done.returncode, done.stderr.decode())
    assert "two models" in refusal("serve", str(folder / "base"), f"base={folder / 'reviews'}")
    (tmp_path / "keys").write_text("\n \n")
    assert "no API key" in refusal("serve", str(folder / "base"), "--api-key-file", str(tmp_path / "keys"))


def test_a_taken_port_is_one_line(server: Running, folder: Path) -> None:
    assert f"127.0.0.1:{server.port}" in refusal("serve", str(folder / "base"), "--port", str(server.port))


def test_names_of_models() -> None:
    assert named_sources(["org/small-en", "x/reviews/", "de=a=b"]) == {
        "small-en": "org/small-en",
        "reviews": "x/reviews/",
        "de": "a=b",
    }


def test_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.serve.server.num_cores", lambda: 8)
    assert [group.threads for group in ServePlan(("a", "b"), workers=2).groups()] == [2, 2]
    assert [group.threads for group in ServePlan(("a", "b"), shared=True).groups()] == [8]
    assert [group.threads for group in ServePlan(("a",), workers=20).groups()] == [1]
