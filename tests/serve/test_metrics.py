"""What Prometheus reads: lines that parse, buckets that add up, labels that cannot be chosen by clients."""

import re

from starlette.testclient import TestClient

from bertkit.inference.bert import Bert
from bertkit.serve.metrics import Histogram, Metrics
from tests.serve.serving import client_of

LINE = re.compile(r'[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\.)*"(,[a-z]+="(?:[^"\\\n]|\\.)*")*\})? [0-9.e+-]+')


def test_buckets_add_up() -> None:
    one = Histogram((1, 2, 5))
    for value in (0.5, 1, 1.5, 7):
        one.observe(value)
    assert list(one.lines("x", ())) == [
        'x_bucket{le="1"} 2',
        'x_bucket{le="2"} 3',
        'x_bucket{le="5"} 3',
        'x_bucket{le="+Inf"} 4',
        "x_sum 10",
        "x_count 4",
    ]


def test_values_are_escaped() -> None:
    metrics = Metrics()
    metrics.request('a"b\\c\nd', "", 200, 0.1)
    assert r'route="a\"b\\c\nd"' in metrics.text()


def test_every_stage_is_counted_and_every_line_parses(berts: dict[str, Bert]) -> None:
    with client_of(berts) as client:
        client.post("/embed", json={"inputs": ["my dog", "is cute"]})
        client.post("/embed", json={"inputs": "my dog " * 40, "truncate": True})
        client.post("/predict", json={"inputs": []})
        told = client.get("/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in told.text.splitlines():
        assert line.startswith("# TYPE bertkit_") or LINE.fullmatch(line), line
    for line in (
        'bertkit_requests_total{route="/embed",model="base",status="200"} 2',
        'bertkit_requests_total{route="/predict",model="",status="422"} 1',
        "bertkit_truncated_texts_total 1",
        "bertkit_batches_total 2",
        "bertkit_tokens_total 56",
        "bertkit_queue_items 0",
        "bertkit_requests_under_way 0",
        "bertkit_batch_fill_count 2",
        *(f'bertkit_stage_seconds_count{{stage="{stage}"}} 2' for stage in ("tokenize", "queue", "compute")),
    ):
        assert line in told.text.splitlines()


def test_clients_cannot_make_labels(client: TestClient) -> None:
    for number in range(20):
        client.get(f"/nowhere-{number}")
        client.post("/embed", json={"inputs": "x", "model": f"name-{number}"})
        client.post(f"/models/name-{number}/embed", json={"inputs": "x"})
    told = client.get("/metrics").text
    assert "nowhere" not in told
    assert "name-" not in told
