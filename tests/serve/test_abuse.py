"""As its users would break it: broken JSON, any Unicode, huge and slow bodies, wrong keys, names of files."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.serve.guard import Keys
from bertkit.serve.settings import ServeSettings
from tests.serve.serving import client_of, make_app

ANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = st.text(st.characters(), max_size=60)  # lone surrogates too
ROUTES = ("embed", "embed_all", "predict", "tokenize", "fill-mask", "entities")


@ANY
@given(text=TEXT, route=st.sampled_from(ROUTES))
def test_any_text_is_answered_or_refused(client: TestClient, text: str, route: str) -> None:
    answer = client.post(
        f"/{route}", content=json.dumps({"inputs": text}), headers={"content-type": "application/json"}
    )
    valid = not any(0xD800 <= ord(c) < 0xE000 for c in text) and (route != "fill-mask" or "[MASK]" in text)
    assert answer.status_code == 200 if valid else answer.status_code in (400, 422), answer.text
    answer.json()
    if route == "tokenize" and valid:
        for token in answer.json()[0][1:-1]:
            assert text[token["start"] : token["stop"]] == token["text"]


@ANY
@given(texts=st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_vectors_of_any_texts_are_those_of_offline_use(
    client: TestClient, berts: dict[str, Bert], texts: list[str]
) -> None:
    found = client.post("/embed", json={"inputs": texts, "normalize": False}).json()
    np.testing.assert_allclose(found, berts["base"].embed(texts), atol=1e-5)


@ANY
@given(question=st.text(max_size=20), context=st.text(max_size=80))
def test_answers_are_stretches_of_any_context(client: TestClient, question: str, context: str) -> None:
    answer = client.post("/answer", json={"question": question, "context": context})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    for span in (found, *found["runners_up"]):
        assert context[span["start"] : span["end"]] == span["text"]


@ANY
@given(body=st.binary(max_size=60))
def test_bodies_that_are_no_json_are_refused(client: TestClient, body: bytes) -> None:
    answer = client.post("/embed", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert set(answer.json()) == {"error", "error_type"}


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "null",
        "{}",
        '{"inputs": []}',
        '{"inputs": [1]}',
        '{"inputs": {"a": "b"}}',
        '{"inputs": "x", "normalize": "perhaps"}',
        '{"inputs": "x", "dimensions": -1}',
        '{"inputs": "x", "model": 7}',
        '{"inputs": [[1, 2, 3]]}',
        '{"inputs": ' + "[" * 5000 + "]" * 5000 + "}",
        '{"inputs": "x"} trailing',
        '{"inputs": NaN}',
    ],
)
def test_nonsense_is_refused_in_one_line(client: TestClient, body: str) -> None:
    answer = client.post("/embed", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    assert "\n" not in answer.json()["error"]
    assert len(answer.json()["error"]) < 500


def test_other_content_types_get_a_hint(client: TestClient) -> None:
    answer = client.post("/embed", content='{"inputs": "x"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 422
    assert "application/json" in answer.json()["error"]


def test_unknown_routes_and_methods(client: TestClient) -> None:
    assert client.get("/nowhere").json()["error_type"] == "not_found"
    assert client.get("/embed").status_code == 405
    assert client.post("/page/../app.py", json={}).status_code in (404, 405)
    assert client.get("/page/%2e%2e/app.py").status_code == 404


def test_limits_in_bytes_texts_and_tokens(berts: dict[str, Bert]) -> None:
    with client_of(berts, max_body=5000, max_texts=8, max_request_tokens=100) as client:
        assert client.post("/embed", json={"inputs": "x" * 6000}).status_code == 413
        chunks = (b"x" * 1000 for _ in range(50))
        assert client.post("/embed", content=chunks).status_code == 413
        for route in ("embed", "tokenize", "predict"):
            inputs: Any = [["my dog"]] * 9 if route == "predict" else ["my dog"] * 9
            assert client.post(f"/{route}", json={"inputs": inputs}).status_code == 413
        assert client.post("/embed", json={"inputs": ["my dog is cute he likes playing"] * 8}).status_code == 200
        assert client.post("/embed", json={"inputs": ["my dog " * 10] * 8}).status_code == 413


def test_more_texts_than_a_request_can_have_are_not_promised() -> None:
    with pytest.raises(BertkitError, match="1024 at most"):
        ServeSettings(max_texts=1025)


def test_an_answer_has_so_many_numbers_at_most(berts: dict[str, Bert], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.serve.reading.MAX_NUMBERS", 12 * 32)  # of 32 a token
    with client_of(berts) as client:
        assert client.post("/embed_all", json={"inputs": ["my dog is cute"] * 2}).status_code == 200
        refused = client.post("/embed_all", json={"inputs": ["my dog is cute"] * 3})
        assert refused.status_code == 413
        assert "send 12 at most" in refused.json()["error"]


def test_a_hundred_megabytes_are_refused_without_being_kept(berts: dict[str, Bert]) -> None:
    """The body is made as it is read, so memory would show what the server keeps."""
    app, taken = make_app(berts), 0
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1_000_000
        return {"type": "http.request", "body": bytes(1_000_000), "more_body": taken < 100_000_000}

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "POST", "path": "/embed", "headers": [(b"transfer-encoding", b"chunked")]}
    asyncio.run(_call(app, scope, receive, send))
    assert sent[0]["status"] == 413
    assert taken == 100_000_000  # all was read, so the client is there to see the answer


async def _call(app: Any, *details: Any) -> None:
    await app(*details)


def test_a_body_that_never_ends_is_given_up(berts: dict[str, Bert]) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "POST", "path": "/embed", "headers": []}
    asyncio.run(_call(make_app(berts, body_timeout=0.1), scope, receive, send))
    assert sent[0]["status"] == 408


def test_a_client_that_does_not_read_is_left(berts: dict[str, Bert]) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: Any) -> None:
        await asyncio.sleep(60)

    async def never() -> dict[str, Any]:
        return await asyncio.get_running_loop().create_future()

    events = iter([receive, never])
    scope = {"type": "http", "method": "GET", "path": "/info", "headers": [], "query_string": b"", "raw_path": b"/info"}

    async def next_event() -> dict[str, Any]:
        return await next(events)()

    with pytest.raises(ConnectionError):
        asyncio.run(_call(make_app(berts, answer_timeout=0.1), scope, next_event, send))


@pytest.fixture
def locked(berts: dict[str, Bert]) -> Iterator[TestClient]:
    with client_of(berts, keys=("one-key", "ключ")) as made:
        yield made


def test_keys(locked: TestClient) -> None:
    def status(**headers: str | bytes) -> int:
        named: Any = {name.replace("_", "-"): value for name, value in headers.items()}
        return locked.post("/embed", json={"inputs": "x"}, headers=named).status_code

    assert status() == 401
    assert status(authorization="Bearer wrong") == 401
    assert status(authorization="one-key") == 401
    assert status(authorization="Bearer ") == 401
    assert status(authorization="Bearer one-key") == 200
    assert status(x_api_key="one-key") == 200
    assert status(authorization="Bearer ключ".encode()) == 200
    assert status(authorization=b"Bearer \xff\xfe") == 401
    assert locked.get("/metrics").status_code == 401
    assert locked.get("/models/base/info").status_code == 401
    for open_to_all in ("/", "/health", "/docs", "/openapi.json"):
        assert locked.get(open_to_all).status_code == 200


def test_every_key_is_compared_whichever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append(len(a))
        return a == b

    monkeypatch.setattr("hmac.compare_digest", compare)
    keys = Keys(["a", "long key" * 9, "c"])
    assert keys.allow({b"x-api-key": b"a"})
    assert not keys.allow({b"x-api-key": b"x" * 1000})
    assert compared == [32] * 6  # digests: neither length nor place shows


def test_logs_hold_no_text(client: TestClient, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "zanzibar"
    for route, body in (
        ("embed", {"inputs": secret}),
        ("embed", {"inputs": [secret] * 2000}),
        ("embed", {"inputs": "x", "model": secret}),
        ("fill-mask", {"inputs": secret}),
        ("words", {"inputs": [{"word": secret, "text": "my dog"}]}),
        (f"{secret}?q={secret}", {"inputs": secret}),
        ("answer", {"question": secret, "context": secret * 50}),
    ):
        client.post(f"/{route}", json=body, headers={"x-request-id": f"{secret} {secret}"})
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert len(lines) == 7
    assert secret not in json.dumps(lines)
    first = lines[0]
    assert {"time", "level", "event", "id", "route", "status", "ms", "tokens", "queue_ms", "compute_ms"} <= set(first)
    assert first["route"] == "/embed"


def test_a_bug_is_one_clean_answer_and_one_line(
    berts: dict[str, Bert], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("zanzibar")

    with client_of(berts) as client:
        monkeypatch.setattr("bertkit.serve.routes_vectors.prepare_embed", broken)
        answer = client.post("/embed", json={"inputs": "x"})
        assert (answer.status_code, answer.json()["error_type"]) == (500, "internal")
        monkeypatch.setattr(Bert, "fill_mask", broken)
        answer = client.post("/fill-mask", json={"inputs": "[MASK]"})
        assert (answer.status_code, answer.json()["error_type"]) == (500, "backend")
    told = capfd.readouterr().err
    assert "RuntimeError at test_abuse.py" in told
    assert "zanzibar" not in told
    assert "Traceback" not in told
