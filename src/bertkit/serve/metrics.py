"""Figures of the running server in Prometheus' text format: requests, queue, batch fill, latency by stage.

Labels are routes, served models, statuses and stages alone, so their number is bounded whatever clients send.
"""

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
Labels = tuple[tuple[str, str], ...]


class Histogram:
    """How often values fell into each bucket, their sum and their number."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts = bounds, [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        """As Prometheus reads it: buckets add up."""
        running = 0
        for bound, number in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            running += number
            yield f"{name}_bucket{_braces((*labels, ('le', bound)))} {running}"
        yield f"{name}_sum{_braces(labels)} {self.total:.9g}"
        yield f"{name}_count{_braces(labels)} {running}"


class Metrics:
    """Everything that /metrics shows."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._stages: dict[Labels, Histogram] = {}
        self._requests: dict[Labels, Histogram] = {}
        self._fill, self._items = Histogram(SHARES), Histogram(COUNTS)
        self._queues: dict[int, tuple[int, int]] = {}
        self.under_way = 0
        self.workers_up = 0

    def request(self, route: str, model: str, status: int, seconds: float) -> None:
        """A request was answered or refused."""
        labels = (("route", route), ("model", model), ("status", str(status)))
        self._counters["bertkit_requests_total"][labels] += 1
        self._requests.setdefault((("route", route),), Histogram(SECONDS)).observe(seconds)

    def stage(self, name: str, seconds: float) -> None:
        """How long a request spent in tokenize, queue or compute."""
        self._stages.setdefault((("stage", name),), Histogram(SECONDS)).observe(seconds)

    def batch(self, num_tokens: int, num_items: int, budget: int, seconds: float) -> None:
        """A batch was computed."""
        self._counters["bertkit_batches_total"][()] += 1
        self._counters["bertkit_tokens_total"][()] += num_tokens
        self._counters["bertkit_batch_seconds_total"][()] += seconds
        self._fill.observe(num_tokens / budget)
        self._items.observe(num_items)

    def count(self, name: str, number: int = 1) -> None:
        """One of the plain counters: truncated_texts, worker_restarts, cancelled_requests."""
        self._counters[f"bertkit_{name}_total"][()] += number

    def queue(self, which: int, num_items: int, num_tokens: int) -> None:
        """How much waits in a queue now."""
        self._queues[which] = (num_items, num_tokens)

    def text(self) -> str:
        """The exposition."""
        lines: list[str] = []
        for name, values in sorted(self._counters.items()):
            lines.append(f"# TYPE {name} counter")
            lines += [f"{name}{_braces(labels)} {value:.9g}" for labels, value in values.items()]
        gauges = {
            "bertkit_queue_items": sum(items for items, _ in self._queues.values()),
            "bertkit_queue_tokens": sum(tokens for _, tokens in self._queues.values()),
            "bertkit_requests_under_way": self.under_way,
            "bertkit_workers_up": self.workers_up,
            "bertkit_resident_bytes": resident_bytes(),
        }
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        for name, histograms in (
            ("bertkit_request_seconds", self._requests),
            ("bertkit_stage_seconds", self._stages),
            ("bertkit_batch_fill", {(): self._fill}),
            ("bertkit_batch_items", {(): self._items}),
        ):
            lines.append(f"# TYPE {name} histogram")
            lines += [line for labels, one in histograms.items() for line in one.lines(name, labels)]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int:
    """Memory that this process holds; 0 where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
