"""Clients for the server's benchmark and tests: many connections, one rate, every answer accounted for.

Bare sockets in one thread, requests written down beforehand, and of an answer only its length, status and one header
are read: the clients share the machine with the server that they measure, and what they take is counted apart.
"""

import json
import os
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
END, LENGTH, COMPUTE, CLOSE = b"\r\n\r\n", b"\r\ncontent-length: ", b"\r\nx-inference-time: ", b"\r\nconnection: close"


@dataclass
class Load:
    """What became of many requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # of those answered with 200
    compute: list[float] = field(default_factory=list)  # of the same, what the server says the model took
    broken: list[str] = field(default_factory=list)  # neither answered nor refused
    resident: dict[int, int] = field(default_factory=dict)  # bytes after so many requests
    wall: float = 0.0
    client_cpu: float = 0.0  # seconds of processor time that the clients took
    server_cpu: float = 0.0  # and all watched processes

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


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time that these processes have taken, all threads, user and system."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / TICKS


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
    requests = [request_bytes("/embed", {"inputs": text}) for text in texts]
    clients = Clients(port, requests, connections, rate)
    before, own = cpu_seconds(watch), time.thread_time()
    start = time.perf_counter()
    result = clients.run(watch, set(marks))
    result.wall = time.perf_counter() - start
    result.client_cpu, result.server_cpu = time.thread_time() - own, cpu_seconds(watch) - before
    return result


def request_bytes(path: str, body: object) -> bytes:
    """A whole request."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
    return f"{head}\r\n".encode() + content


class Clients:
    """Connections that take the next request as soon as they are free and it is due."""

    def __init__(self, port: int, requests: Sequence[bytes], connections: int, rate: float | None) -> None:
        self.port, self.rate = port, rate
        self.jobs: Iterator[tuple[int, bytes]] = iter(enumerate(requests))
        self.num_requests, self.num_connections = len(requests), min(connections, len(requests))
        self.selector = selectors.DefaultSelector()
        self.result = Load()

    def run(self, watch: Sequence[int], marks: set[int]) -> Load:
        """Until every request is answered, refused or broken."""
        start = time.perf_counter()
        free = [Connection(self.port) for _ in range(self.num_connections)]
        coming = next(self.jobs, None)
        while self.result.num_done < self.num_requests:
            pause = None
            while coming is not None and free:
                due = start + coming[0] / self.rate if self.rate else 0.0
                pause = max(0.0, due - time.perf_counter()) if due else 0.0
                if pause:
                    break
                self._send(free.pop(), coming[1], free)
                coming = next(self.jobs, None)
            for key, _ in self.selector.select(pause or None):
                self._receive(key.data, free, watch, marks)
        for connection in free:
            connection.close()
        self.selector.close()
        return self.result

    def _send(self, connection: "Connection", request: bytes, free: list["Connection"]) -> None:
        try:
            connection.send(request)
            self.selector.register(connection.fileno(), selectors.EVENT_READ, connection)
        except OSError as error:
            self._done(connection, free, type(error).__name__)

    def _receive(
        self, connection: "Connection", free: list["Connection"], watch: Sequence[int], marks: set[int]
    ) -> None:
        place = connection.fileno()
        try:
            if not connection.receive(self.result):
                return
        except (OSError, ValueError) as error:
            self.selector.unregister(place)
            self._done(connection, free, type(error).__name__)
        else:
            self.selector.unregister(place)
            self._done(connection, free)
        if self.result.num_done in marks:
            self.result.resident[self.result.num_done] = resident(watch)

    def _done(self, connection: "Connection", free: list["Connection"], broken: str = "") -> None:
        if broken:
            self.result.broken.append(broken)
            connection.close()
        free.append(connection)


class Connection:
    """One client: keeps its connection where the server does."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket: socket.socket | None = None
        self.start = 0.0
        self.got = bytearray()
        self.wanted = 0  # bytes of the whole answer, once its head has come

    def fileno(self) -> int:
        """Of the open socket."""
        assert self.socket is not None
        return self.socket.fileno()

    def send(self, request: bytes) -> None:
        """The next request; short enough to leave at once."""
        self.start = time.perf_counter()
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.got, self.wanted = bytearray(), 0
        self.socket.sendall(request)

    def receive(self, result: Load) -> bool:
        """What has come; whether the answer is whole, and then it is accounted for."""
        assert self.socket is not None
        part = self.socket.recv(1 << 18)
        if not part:
            raise ConnectionError("the server hung up")
        self.got += part
        if not self.wanted and (end := self.got.find(END)) >= 0:
            self.wanted = end + len(END) + int(_header(self.got, LENGTH))
        if not self.wanted or len(self.got) < self.wanted:
            return False
        status = int(self.got[9:12])
        result.statuses[status] += 1
        if status == 200:
            result.seconds.append(time.perf_counter() - self.start)
            result.compute.append(float(_header(self.got, COMPUTE)) / 1000)
        if CLOSE in self.got[: self.got.find(END)]:
            self.close()
        return True

    def close(self) -> None:
        """Hang up."""
        if self.socket:
            self.socket.close()
        self.socket = None


def _header(answer: bytearray, name: bytes) -> bytes:
    start = answer.index(name) + len(name)
    return bytes(answer[start : answer.index(b"\r", start)])
