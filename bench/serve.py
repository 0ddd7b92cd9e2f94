"""The server on this machine: what it adds to one request, what it keeps of offline throughput, and an overload.

    python -m bench.serve [--requests 10000] [--connections 64] [--model FOLDER] [--json out.json]

Sentences of the SST-2 development set, MiniLM exported with --int8 unless a folder is named. Offline and served rounds
alternate, so that a busy moment hits both alike. Clients share the cores with the server that they measure, so what is
kept of offline throughput is told twice: by the clock, and by processor time (texts a CPU-second of all the server's
processes, over texts a CPU-second offline), which is what the server would keep with its clients elsewhere.
The overload sends requests at three times the measured capacity: each must be answered or refused cleanly.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import bertkit
from bench.data import MINILM, ROOT, sst2_dev
from bench.serve_load import Load, load
from bertkit.inference.engines.choose import CHANNELS_FILE, FOLDER
from bertkit.inference.engines.export import export_onnx

DEADLINE = 5.0  # seconds, of the overloaded server
EARLY = 2000  # requests after which memory should be settled
SIZES = (1, 8, 32)  # texts of a request that saturates
EXPORTED = ROOT / "build" / "minilm-int8"


def exported() -> Path:
    """MiniLM as `bertkit export --int8` leaves it, made once."""
    if not (EXPORTED / FOLDER / CHANNELS_FILE).is_file():
        shutil.copytree(MINILM, EXPORTED, dirs_exist_ok=True)
        export_onnx(bertkit.load(MINILM, device="cpu", engine="torch"), EXPORTED, int8=True)
    return EXPORTED


@contextmanager
def server(model: Path, *options: str) -> Iterator[tuple[int, list[int]]]:
    """`bertkit serve` on a free port; its port and the ids of all its processes."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "bertkit.cli.main", "serve", str(model), "--port", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        _wait(port, process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield port, [process.pid, *map(int, children)]
    finally:
        process.terminate()
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("bench: the server did not start")


def measure_speed(model: Path, texts: list[str], connections: int, rounds: int) -> dict[str, Any]:
    """One at a time, and as many as it takes: offline beside served, round by round."""
    bert = bertkit.load(model, device="cpu")
    bert.embed(texts[:50])
    alone, added, through, offline = [], [], [], []
    served: dict[int, list[dict[str, float]]] = {size: [] for size in SIZES}
    with server(model) as (port, pids):
        load(port, texts[:200], connections=32)
        for _ in range(rounds):
            alone += [_seconds(bert, text) for text in texts[:100]]
            one_by_one = load(port, texts[:100], connections=1)
            through += one_by_one.seconds
            added += [whole - own for whole, own in zip(one_by_one.seconds, one_by_one.compute, strict=True)]
            offline.append(measure_offline(bert, texts))
            for size, found in served.items():
                found.append(measure_saturated(port, pids, texts, size, connections, offline[-1]))
    return {
        "offline_ms": 1000 * statistics.median(alone),
        "served_ms": 1000 * statistics.median(through),
        "added_ms": 1000 * statistics.median(added),
        "engine": bert.engine,
        "offline": medians(offline),
        "served": {size: medians(found) for size, found in served.items()},
    }


def measure_offline(bert: bertkit.Bert, texts: list[str]) -> dict[str, float]:
    """Texts a second, and milliseconds of processor time a text."""
    start, cpu = time.perf_counter(), time.process_time()
    bert.embed(texts)
    rate = len(texts) / (time.perf_counter() - start)
    return {"texts_per_second": rate, "cpu_ms": 1000 * (time.process_time() - cpu) / len(texts)}


def measure_saturated(
    port: int, pids: list[int], texts: list[str], size: int, connections: int, offline: dict[str, float]
) -> dict[str, float]:
    """The same of a server that is never idle, with so many texts a request; and what it keeps of offline."""
    requests: list[str | list[str]] = [texts[i : i + size] for i in range(0, len(texts), size)]
    busy = load(port, requests, connections=connections, watch=pids)
    rate = len(texts) / busy.wall if len(busy.seconds) == len(requests) else 0.0
    cpu_ms = 1000 * busy.server_cpu / len(texts)
    return {
        "texts_per_second": rate,
        "cpu_ms": cpu_ms,
        "client_cpu_ms": 1000 * busy.client_cpu / len(texts),
        "kept_by_clock": rate / offline["texts_per_second"],
        "kept_by_cpu": offline["cpu_ms"] / cpu_ms,
    }


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Of each figure over all rounds."""
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def _seconds(bert: bertkit.Bert, text: str) -> float:
    start = time.perf_counter()
    bert.embed([text])
    return time.perf_counter() - start


def measure_overload(model: Path, texts: list[str], connections: int, requests: int, capacity: float) -> dict[str, Any]:
    """Three times what it can serve, from so many connections."""
    many = list(islice(cycle(texts), requests))
    marks = [min(EARLY, requests // 5), requests]
    # Half of the connections may be under way at once; the others are refused.
    with server(model, "--deadline", str(DEADLINE), "--max-requests", str(connections // 2)) as (port, pids):
        found = load(port, many, connections=connections, rate=3 * capacity, watch=pids, marks=marks)
    return {
        "requests": requests,
        "connections": connections,
        "offered_per_second": requests / found.wall,
        "answered": found.statuses[200],
        "refused_429": found.statuses[429],
        "other_statuses": {status: n for status, n in found.statuses.items() if status not in (200, 429)},
        "broken": len(found.broken),
        "p50_ms": 1000 * found.quantile(0.5),
        "p99_ms": 1000 * found.quantile(0.99),
        "deadline_ms": 1000 * DEADLINE,
        "memory_growth": growth(found, marks),
        "resident_mb": [found.resident[mark] / 1e6 for mark in marks if mark in found.resident],
    }


def growth(found: Load, marks: list[int]) -> float:
    """Of resident memory between the two marks."""
    early, late = (found.resident[mark] for mark in marks)
    return late / early - 1


def table(speed: dict[str, Any]) -> str:
    """Offline beside saturated, in Markdown."""
    lines = [
        f"| saturated, {speed['engine']} | texts/s | CPU ms a text | of the clients | kept by the clock | by CPU time |",
        "|---|---|---|---|---|---|",
        f"| offline | {speed['offline']['texts_per_second']:.0f} | {speed['offline']['cpu_ms']:.2f} | | | |",
    ]
    for size, found in speed["served"].items():
        times = f"{found['texts_per_second']:.0f} | {found['cpu_ms']:.2f} | {found['client_cpu_ms']:.2f}"
        kept = f"{100 * found['kept_by_clock']:.0f} % | {100 * found['kept_by_cpu']:.0f} %"
        lines.append(f"| {size} texts a request | {times} | {kept} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print; also JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    texts = sst2_dev()
    model = arguments.model or exported()
    print(f"{model.name}, SST-2 dev, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    speed = measure_speed(model, texts, arguments.connections, arguments.rounds)
    print(
        f"one at a time: offline {speed['offline_ms']:.2f} ms, served {speed['served_ms']:.2f} ms; "
        f"the server adds {speed['added_ms']:.2f} ms to the engine's own time (median)\n\n{table(speed)}\n",
        flush=True,
    )
    capacity = speed["served"][1]["texts_per_second"]
    overload = measure_overload(model, texts, arguments.connections, arguments.requests, capacity)
    print("\n".join(f"{name}: {value}" for name, value in overload.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps({"speed": speed, "overload": overload}, indent=2) + "\n")


if __name__ == "__main__":
    main()
