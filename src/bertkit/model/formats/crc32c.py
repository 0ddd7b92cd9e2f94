"""CRC-32C (Castagnoli), the checksum of TensorFlow checkpoints, in numpy: bytes in, a 32-bit number out.

A CRC is linear, so the words of the input are dealt to many lanes that advance together, one array operation for
all of them; the lanes are then folded into one. Shifting a lane past k bytes is a linear map of its 32 bits, here
two table look-ups of 16 bits each.
"""

from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78  # bit-reversed
MASK_DELTA = 0xA282EAD8
MAX_LOG_LANES = 14  # rows of 64 KiB: long enough to hide Python's share, short enough for the cache
SHORT = 64  # bytes; below, a plain loop is faster

Words = NDArray[np.uint32]


def crc32c(data: bytes | NDArray[np.uint8]) -> int:
    """The checksum of these bytes."""
    raw = np.frombuffer(data, np.uint8)
    state = _by_bytes(raw) if raw.size < SHORT else _by_lanes(raw)
    return state ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """The checksum as TensorFlow stores it, so that a checksum over stored checksums stays meaningful."""
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def _by_bytes(raw: NDArray[np.uint8]) -> int:
    table, state = _byte_table(), 0xFFFFFFFF
    for byte in raw.tolist():
        state = (state >> 8) ^ table[(state ^ byte) & 0xFF]
    return state


def _by_lanes(raw: NDArray[np.uint8]) -> int:
    log_lanes = min(MAX_LOG_LANES, (raw.size // 32).bit_length() - 1)
    row_bytes = 4 << log_lanes
    head_bytes = raw.size % row_bytes + row_bytes
    # Leading zeros do not change a CRC that starts at zero, so the first rows are padded in front; starting at
    # all ones instead is the same as inverting the first four bytes.
    head = np.zeros(2 * row_bytes, np.uint8)
    head[-head_bytes:] = raw[:head_bytes]
    head[-head_bytes:][:4] ^= 0xFF
    body = raw[head_bytes:].view("<u4").reshape(-1, row_bytes // 4)
    low, high = _shift(2 + log_lanes)
    lanes: Words = np.zeros(row_bytes // 4, np.uint32)
    for row in chain(head.view("<u4").reshape(2, -1), body):
        lanes = low[lanes & 0xFFFF] ^ high[lanes >> 16] ^ row
    for log_half in reversed(range(log_lanes)):
        low, high = _shift(2 + log_half)
        first, second = lanes.reshape(2, -1)
        lanes = low[first & 0xFFFF] ^ high[first >> 16] ^ second
    low, high = _shift(2)
    return int(low[lanes[0] & 0xFFFF] ^ high[lanes[0] >> 16])


@cache
def _byte_table() -> tuple[int, ...]:
    """What eight zero bits do to the low byte of the state."""
    values = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901 - shifted out bit by bit
        values.append(value)
    return tuple(values)


@cache
def _shift(log_bytes: int) -> tuple[Words, Words]:
    """Tables over the low and the high half of a state that move it past 2 ** log_bytes zero bytes."""
    if log_bytes == 0:
        table = _byte_table()
        images = np.array([table[bit & 0xFF] ^ (bit >> 8) for bit in (1 << n for n in range(32))], np.uint32)
    else:
        low, high = _shift(log_bytes - 1)
        bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
        images = low[bits & 0xFFFF] ^ high[bits >> 16]
        images = low[images & 0xFFFF] ^ high[images >> 16]
    return _spanned(images[:16]), _spanned(images[16:])


def _spanned(images: Words) -> Words:
    """The image of every 16-bit value, from the images of its bits."""
    table: Words = np.zeros(1, np.uint32)
    for image in images:
        table = np.concatenate([table, table ^ image])
    return table
