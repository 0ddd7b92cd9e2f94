"""An event file for TensorBoard, written without it: scalars by step, each event a framed and checksummed record.

In: names, values, a step. Out: events.out.tfevents.* in a folder, which `tensorboard --logdir` shows.
"""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from bertkit.model.formats.crc32c import crc32c, masked
from bertkit.model.formats.protobuf import write_bytes, write_fixed32, write_int, write_varint

# Fields of TensorFlow's messages Event, Summary, Summary.Value and SessionLog.
WALL_TIME, STEP, FILE_VERSION, SUMMARY, SESSION_LOG = 1, 2, 3, 5, 7
VALUE = 1
TAG, SIMPLE_VALUE = 1, 2
STATUS, START = 1, 1
FIXED64 = 1


class EventFile:
    """Appends events to a new file; everything written is on its way to the disk at once."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        seconds, rest = divmod(time.time_ns(), 10**9)
        name = f"events.out.tfevents.{seconds:010d}.{socket.gethostname()}.{os.getpid()}.{rest}"
        self._file = (folder / name).open("ab")
        self._write(write_bytes(FILE_VERSION, b"brain.Event:2"))
        # The run begins at this step: what earlier files, of a run that was killed, say from it on does not count.
        self._write(write_int(STEP, step) + write_bytes(SESSION_LOG, write_int(STATUS, START)))

    def write(self, values: Mapping[str, float], step: int) -> None:
        """All these scalars at one step."""
        parts = [
            write_bytes(VALUE, write_bytes(TAG, name.encode()) + write_fixed32(SIMPLE_VALUE, _float_bits(value)))
            for name, value in values.items()
        ]
        self._write(write_int(STEP, step) + write_bytes(SUMMARY, b"".join(parts)))

    def close(self) -> None:
        """No more events."""
        self._file.close()

    def _write(self, event: bytes) -> None:
        dated = write_varint(WALL_TIME << 3 | FIXED64) + struct.pack("<d", time.time()) + event
        length = struct.pack("<Q", len(dated))
        self._file.write(length + _checksum(length) + dated + _checksum(dated))
        self._file.flush()


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked(crc32c(data)))


def _float_bits(value: float) -> int:
    """A float32's bits; what is too large for one is infinite."""
    try:
        return int.from_bytes(struct.pack("<f", value), "little")
    except OverflowError:
        return int.from_bytes(struct.pack("<f", float("inf") if value > 0 else float("-inf")), "little")
