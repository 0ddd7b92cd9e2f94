"""The server on this machine: what it adds to one request, what it keeps of offline throughput, and an overload.

    python -m bench.serve [--requests 10000] [--connections 64] [--model FOLDER] [--json out.json]

Sentences of the SST-2 development set, MiniLM exported with --int8 unless a folder is named. Offline and served rounds
alternate, so that a busy moment hits both alike; clients share the cores with the server that they measure.
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
BULK = 8  # texts of a request where a client has many
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
    alone, added, offline_rate, through = [], [], [], []
    served_rates: dict[int, list[float]] = {1: [], BULK: []}
    with server(model) as (port, _):
        load(port, texts[:50], connections=4)
        for _ in range(rounds):
            alone += [_seconds(bert, text) for text in texts[:100]]
            one_by_one = load(port, texts[:100], connections=1)
            through += one_by_one.seconds
            added += [whole - own for whole, own in zip(one_by_one.seconds, one_by_one.compute, strict=True)]
            start = time.perf_counter()
            bert.embed(texts)
            offline_rate.append(len(texts) / (time.perf_counter() - start))
            for size, rates in served_rates.items():
                requests = [texts[i : i + size] for i in range(0, len(texts), size)]
                busy = load(port, requests, connections=connections)
                rates.append(len(texts) / busy.wall if len(busy.seconds) == len(requests) else 0.0)
    kept = {
        size: statistics.median(s / o for s, o in zip(rates, offline_rate, strict=True))
        for size, rates in served_rates.items()
    }
    return {
        "offline_ms": 1000 * statistics.median(alone),
        "served_ms": 1000 * statistics.median(through),
        "added_ms": 1000 * statistics.median(added),
        "engine": bert.engine,
        "offline_texts_per_second": statistics.median(offline_rate),
        "served_texts_per_second": statistics.median(served_rates[1]),
        "kept": kept[1],
        "served_texts_per_second_in_bulk": statistics.median(served_rates[BULK]),
        "kept_in_bulk": kept[BULK],
    }


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
        f"the server adds {speed['added_ms']:.2f} ms to the engine's own time (median)\n"
        f"saturated ({speed['engine']}): offline {speed['offline_texts_per_second']:.0f} texts/s, "
        f"served {speed['served_texts_per_second']:.0f} texts/s one a request, {100 * speed['kept']:.0f} % kept; "
        f"{speed['served_texts_per_second_in_bulk']:.0f} texts/s {BULK} a request, "
        f"{100 * speed['kept_in_bulk']:.0f} % kept",
        flush=True,
    )
    capacity = speed["served_texts_per_second"]
    overload = measure_overload(model, texts, arguments.connections, arguments.requests, capacity)
    print("\n".join(f"{name}: {value}" for name, value in overload.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps({"speed": speed, "overload": overload}, indent=2) + "\n")


if __name__ == "__main__":
    main()
