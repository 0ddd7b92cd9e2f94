"""Clients for the server's benchmark and tests: many connections, one rate, every answer accounted for.

Written on bare streams, because the clients share the machine with the server that they measure.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAGE = 4096


@dataclass
class Load:
    """What became of many requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # of those answered with 200
    compute: list[float] = field(default_factory=list)  # of the same, what the server says the model took
    broken: list[str] = field(default_factory=list)  # neither answered nor refused
    resident: dict[int, int] = field(default_factory=dict)  # bytes after so many requests
    wall: float = 0.0

    @property
    def num_done(self) -> int:
        """Answered, refused or broken."""
        return self.statuses.total() + len(self.broken)

    def quantile(self, share: float) -> float:
        """Of the seconds of answered requests."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def resident(pids: Iterable[int]) -> int:
    """Bytes that these processes hold in memory."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE for pid in pids)


def load(
    port: int,
    texts: Sequence[str | list[str]],
    *,
    connections: int,
    rate: float | None = None,
    watch: Sequence[int] = (),
    marks: Sequence[int] = (),
) -> Load:
    """One request a text or list, at a rate (or as fast as answers come); memory of the watched processes at each mark."""
    return asyncio.run(_load(port, texts, connections, rate, watch, set(marks)))


async def _load(
    port: int,
    texts: Sequence[str | list[str]],
    connections: int,
    rate: float | None,
    watch: Sequence[int],
    marks: set[int],
) -> Load:
    result, jobs, start = Load(), iter(enumerate(texts)), time.perf_counter()

    async def client() -> None:
        connection = Connection(port)
        for number, text in jobs:
            if rate:
                await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
            await connection.ask(text, result)
            if result.num_done in marks:
                result.resident[result.num_done] = resident(watch)
        connection.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    result.wall = time.perf_counter() - start
    return result


class Connection:
    """One client: keeps its connection where the server does."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, text: str | list[str], result: Load) -> None:
        """One request, accounted for."""
        start = time.perf_counter()
        try:
            status, headers, _ = await self.post("/embed", {"inputs": text})
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            self.close()
            result.broken.append(type(error).__name__)
            return
        result.statuses[status] += 1
        if status == 200:
            result.seconds.append(time.perf_counter() - start)
            result.compute.append(float(headers["x-inference-time"]) / 1000)

    async def post(self, path: str, body: object) -> tuple[int, dict[str, str], bytes]:
        """Send, and read the whole answer."""
        if self.reader is None or self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
        self.writer.write(f"{head}\r\n".encode() + content)
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(_headers(lines[1:]))
        answer = await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.close()
        return int(lines[0].split()[1]), headers, answer

    def close(self) -> None:
        """Hang up."""
        if self.writer:
            self.writer.close()
        self.reader = self.writer = None


def _headers(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            yield name.lower(), value.strip()
