"""Messages between the server and its worker processes: JSON and arrays as bytes, on a socket. No pickle.

A frame is the length of what follows (8 bytes), the length of its JSON (4 bytes), the JSON, then each array's bytes;
the JSON's "arrays" gives their shapes. Arrays are float32.
"""

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Message = dict[str, Any]
LENGTHS = struct.Struct("<QI")


def to_frame(message: Message, arrays: Sequence[Array] = ()) -> bytes:
    """One frame."""
    shapes = [array.shape for array in arrays]
    head = json.dumps({**message, "arrays": shapes}, ensure_ascii=False, separators=(",", ":")).encode()
    parts = [np.ascontiguousarray(array, dtype=np.float32).tobytes() for array in arrays]
    size = len(head) + sum(map(len, parts))
    return b"".join([LENGTHS.pack(size, len(head)), head, *parts])


def from_frame(head_size: int, body: bytes) -> tuple[Message, list[Array]]:
    """The message and its arrays, which share the body's memory."""
    message: Message = json.loads(body[:head_size])
    arrays, start = [], head_size
    for shape in message.pop("arrays"):
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(body, dtype=np.float32, count=count, offset=start).reshape(shape))
        start += count * 4
    return message, arrays


def receive(connection: socket.socket) -> tuple[Message, list[Array]] | None:
    """The next frame of a blocking socket; None when the other side has gone."""
    lengths = _read(connection, LENGTHS.size)
    if lengths is None:
        return None
    size, head_size = LENGTHS.unpack(lengths)
    body = _read(connection, size)
    return None if body is None else from_frame(head_size, body)


def _read(connection: socket.socket, size: int) -> bytes | None:
    buffer = bytearray(size)
    view, have = memoryview(buffer), 0
    while have < size:
        got = connection.recv_into(view[have:])
        if not got:
            return None
        have += got
    return bytes(buffer)
