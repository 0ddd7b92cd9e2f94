"""The sorted string table of LevelDB, in which TensorFlow keeps the index of a checkpoint.

Bytes of a `.index` file <-> (key, value) pairs in the order of the keys. Blocks hold prefix-compressed keys and end
in a checksum, which is verified. Damage raises ValueError.
"""

import struct
from collections.abc import Iterable, Iterator

from bertkit.model.formats.crc32c import crc32c, masked
from bertkit.model.formats.protobuf import read_varint, write_varint
from bertkit.model.formats.snappy import decompress

MAGIC = 0xDB4775248B80FB57
FOOTER_BYTES = 48
TRAILER_BYTES = 5  # compression, checksum
RESTART_INTERVAL = 16
BLOCK_BYTES = 256 * 1024  # TensorFlow's own
PLAIN, SNAPPY = 0, 1


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every (key, value) of the table."""
    footer = data[-FOOTER_BYTES:]
    if len(footer) < FOOTER_BYTES or int.from_bytes(footer[-8:], "little") != MAGIC:
        raise ValueError("it does not end as a checkpoint index ends; it is cut short or something else")
    _, at = _read_handle(footer, 0)  # of the meta-index, which is empty
    index, _ = _read_handle(footer, at)
    for _, handle in _read_entries(_read_block(data, *index)):
        block, _ = _read_handle(handle, 0)
        yield from _read_entries(_read_block(data, *block))


def _read_handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """((offset, size) of a block, where the next thing starts)."""
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return (offset, size), at


def _read_block(data: bytes, offset: int, size: int) -> bytes:
    stored = data[offset : offset + size + TRAILER_BYTES]
    if len(stored) != size + TRAILER_BYTES:
        raise ValueError("a block reaches beyond the end")
    if masked(crc32c(stored[:-4])) != int.from_bytes(stored[-4:], "little"):
        raise ValueError(f"the checksum of the block at byte {offset} is wrong")
    if stored[size] == PLAIN:
        return stored[:size]
    if stored[size] == SNAPPY:
        return decompress(stored[:size])
    raise ValueError(f"a block is compressed in unknown way {stored[size]}")


def _read_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise ValueError("a block is cut short")
    num_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * num_restarts
    at, key = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        unshared, at = read_varint(block, at)
        size, at = read_varint(block, at)
        if shared > len(key) or at + unshared + size > end:
            raise ValueError("an entry reaches beyond its block")
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + size]
        at += size


def write_table(entries: Iterable[tuple[bytes, bytes]], block_bytes: int = BLOCK_BYTES) -> bytes:
    """The table of these pairs, which come sorted by key."""
    table, index, pending, filled = bytearray(), [], [], 0
    for key, value in entries:
        pending.append((key, value))
        filled += len(key) + len(value)
        if filled >= block_bytes:
            index.append((key, _append_block(table, pending)))
            pending, filled = [], 0
    if pending:
        index.append((_short_successor(pending[-1][0]), _append_block(table, pending)))
    footer = _append_block(table, []) + _append_block(table, index, restart_interval=1)
    return bytes(table) + footer.ljust(FOOTER_BYTES - 8, b"\0") + MAGIC.to_bytes(8, "little")


def _append_block(
    table: bytearray, pairs: list[tuple[bytes, bytes]], restart_interval: int = RESTART_INTERVAL
) -> bytes:
    """Add a block; its handle comes back."""
    block, restarts, last = bytearray(), [0], b""
    for number, (key, value) in enumerate(pairs):
        shared = 0
        if number % restart_interval:
            shared = _common_prefix(last, key)
        elif number:
            restarts.append(len(block))
        block += write_varint(shared) + write_varint(len(key) - shared) + write_varint(len(value))
        block += key[shared:] + value
        last = key
    block += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    handle = write_varint(len(table)) + write_varint(len(block))
    block.append(PLAIN)
    table += block + masked(crc32c(bytes(block))).to_bytes(4, "little")
    return handle


def _common_prefix(one: bytes, other: bytes) -> int:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def _short_successor(key: bytes) -> bytes:
    """A short key after this one, as LevelDB ends its index."""
    for place, byte in enumerate(key):
        if byte != 0xFF:
            return key[:place] + bytes([byte + 1])
    return key
