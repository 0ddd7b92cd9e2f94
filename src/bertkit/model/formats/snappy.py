"""Snappy, decompression only: some TensorFlow versions compress the index of a checkpoint with it.

In: a compressed block. Out: its bytes. Damage raises ValueError.
"""

from bertkit.model.formats.protobuf import read_varint


def decompress(data: bytes) -> bytes:
    """The bytes that were compressed."""
    expected, at = read_varint(data, 0)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            size, at = _literal_size(data, at, tag >> 2)
            literal, at = data[at : at + size], at + size
            if len(literal) != size:
                raise ValueError("a literal is cut short")
            out += literal
        else:
            size, distance, at = _copy(data, at, tag)
            if not 0 < distance <= len(out):
                raise ValueError("a copy reaches before the start")
            pattern = out[-distance:][:size]
            # A copy may overlap what it writes: then its pattern repeats.
            out += (pattern * (size // len(pattern) + 1))[:size]
        if len(out) > expected:
            break
    if len(out) != expected:
        raise ValueError(f"{len(out)} bytes came out, not {expected}")
    return bytes(out)


def _literal_size(data: bytes, at: int, code: int) -> tuple[int, int]:
    if code < 60:
        return code + 1, at
    width = code - 59
    return _number(data, at, width) + 1, at + width


def _copy(data: bytes, at: int, tag: int) -> tuple[int, int, int]:
    """(size, distance back, where the next tag is)."""
    if tag & 3 == 1:
        return (tag >> 2 & 7) + 4, (tag >> 5) << 8 | _number(data, at, 1), at + 1
    width = 2 if tag & 3 == 2 else 4
    return (tag >> 2) + 1, _number(data, at, width), at + width


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise ValueError("a number is cut short")
    return int.from_bytes(data[at : at + width], "little")
