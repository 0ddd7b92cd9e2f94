"""The little of Protocol Buffers that TensorFlow's checkpoints need: fields of a message, read and written.

A damaged message raises ValueError; whoever knows the file's name makes a sentence of it.
"""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that starts there, and where the next thing starts."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is cut short")


def write_varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) in the order of the message; a nested message is bytes."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield tag >> 3, value
            continue
        if kind == BYTES:
            size, at = read_varint(data, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"field {tag >> 3} is of unknown kind {kind}")
        chunk, at = data[at : at + size], at + size
        if len(chunk) != size:
            raise ValueError(f"field {tag >> 3} is cut short")
        yield tag >> 3, chunk if kind == BYTES else int.from_bytes(chunk, "little")


def write_int(field: int, value: int) -> bytes:
    """A number; zero, the default, is left out."""
    return write_varint(field << 3 | VARINT) + write_varint(value) if value else b""


def write_bytes(field: int, value: bytes) -> bytes:
    """A nested message."""
    return write_varint(field << 3 | BYTES) + write_varint(len(value)) + value


def write_fixed32(field: int, value: int) -> bytes:
    """A number of always four bytes."""
    return write_varint(field << 3 | FIXED32) + value.to_bytes(4, "little")
