"""Tiny models of every kind behind the server's routes: inside this process, or as the program that people start."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from bertkit.inference.bert import Bert
from bertkit.model import BertModel, preset
from bertkit.model.config import Head
from bertkit.serve.app import create_app
from bertkit.serve.local import local_service
from bertkit.serve.settings import ServeSettings
from bertkit.tokenizer import Tokenizer

SENTENCES = (
    "my dog is cute he likes playing fun fair in new york city this summer didn ' t receive treatment tom deserves "
    "judgement the man went to store bought a gallon of milk . , ? who what amazing movie i walked out cat asleep "
    "sleeps stocks fell deep learning"
)
WORDS = SENTENCES.split()
PIECES = ("un", "##bia", "##sed", "##s", "##ing", "a", "b", "c", "##a", "##b", "##c")
SIZES = {"hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "max_positions": 48, "initializer_range": 0.5}
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def tiny(seed: int, heads: tuple[Head, ...], labels: tuple[str, ...] = (), **changes: Any) -> Bert:
    """Weights so large that answers differ visibly."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys([*WORDS, *PIECES])]
    torch.manual_seed(seed)
    config = preset("tiny", vocab_size=len(tokens), heads=heads, labels=labels, **{**SIZES, **changes})
    return Bert(BertModel(config), Tokenizer.from_vocab(tokens, lowercase=True))


def all_kinds() -> dict[str, Bert]:
    """One of each kind, by name."""
    return {
        "base": tiny(1, ("pooler", "mlm", "nsp")),
        "reviews": tiny(2, ("pooler", "classifier"), ("bad", "fine", "good")),
        "tags": tiny(3, ("tagger",), TAGS),
        "spans": tiny(4, ("span",)),
    }


def make_app(berts: dict[str, Bert], keys: tuple[str, ...] = (), **settings: Any) -> ASGIApp:
    return create_app(local_service(berts, ServeSettings(**settings)), keys)


@contextmanager
def client_of(berts: dict[str, Bert], keys: tuple[str, ...] = (), **settings: Any) -> Iterator[TestClient]:
    """A client of these models in this process."""
    with TestClient(make_app(berts, keys, **settings)) as client:
        yield client


@dataclass
class Running:
    """`bertkit serve` as a program of its own."""

    process: subprocess.Popen[bytes]
    port: int
    log_file: Path
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def log(self) -> list[dict[str, Any]]:
        """Every line so far; each must be JSON."""
        return [json.loads(line) for line in self.log_file.read_text(encoding="utf-8").splitlines()]

    def children(self) -> list[int]:
        """Process ids of the workers."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(child) for child in path.read_text().split()]

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def stop(self) -> int:
        """SIGTERM and the exit code."""
        self.process.terminate()
        return self.process.wait(60)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def running(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Running]:
    """Start the program, wait until it is well, end it."""
    port, log_file = free_port(), folder / f"serve-{time.monotonic_ns()}.log"
    command = [sys.executable, "-m", "bertkit.cli.main", "serve", *arguments, "--port", str(port), "--device", "cpu"]
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})})
    server = Running(process, port, log_file)
    try:
        wait_until_well(server)
        yield server
    finally:
        server.client.close()
        process.kill()
        process.wait()


def wait_until_well(server: Running, seconds: float = 90) -> None:
    """Until /health says so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert server.process.poll() is None, server.log_file.read_text()
        try:
            if server.client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"not well after {seconds} s: {server.log_file.read_text()}")
