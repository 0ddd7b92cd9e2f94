"""TensorFlow's checkpoint format (the tensor bundle, of TensorFlow 1 and 2) without TensorFlow, read and written.

On disk: `X.index`, a sorted table from tensor name to type, shape, place and checksum, and `X.data-00000-of-0000N`,
the bytes. In memory: tensors by name. Every checksum on the way is verified.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.model.formats.crc32c import crc32c, masked
from bertkit.model.formats.protobuf import read_fields, write_bytes, write_fixed32, write_int
from bertkit.model.formats.sstable import read_table, write_table

# TensorFlow's numbers of the types
DTYPES = {
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    4: torch.uint8,
    5: torch.int16,
    6: torch.int8,
    9: torch.int64,
    10: torch.bool,
    14: torch.bfloat16,
    19: torch.float16,
}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
HEADER_KEY = b""
PRODUCER = 1  # the version of the bundle format


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    is_sliced: bool  # a partitioned variable: its pieces are stored under other keys


@dataclass(frozen=True)
class Bundle:
    """The index of a checkpoint; tensors are read when asked for."""

    prefix: Path
    num_shards: int
    entries: Mapping[str, Entry]

    def shard(self, number: int) -> Path:
        """One of the files that hold the bytes."""
        return self.prefix.with_name(f"{self.prefix.name}.data-{number:05d}-of-{self.num_shards:05d}")

    def read(self, name: str) -> Tensor:
        """One tensor, its checksum verified."""
        entry, path = self.entries[name], self.shard(self.entries[name].shard)
        dtype = self._dtype(name)
        if entry.size != math.prod(entry.shape) * dtype.itemsize or min(entry.shape, default=0) < 0:
            raise BertkitError(f"{index_path(self.prefix)}: {name} has {entry.size} bytes, which do not fit its shape")
        try:
            if path.stat().st_size < entry.offset + entry.size:
                end = entry.offset + entry.size
                raise BertkitError(f"{path} is cut short: {name} should end at byte {end}; fetch it again")
            raw = np.fromfile(path, np.uint8, entry.size, offset=entry.offset)
        except OSError as error:
            raise BertkitError(f"{path} cannot be read: {error.strerror or error}") from None
        if masked(crc32c(raw)) != entry.crc:
            raise BertkitError(f"{path} is damaged: the checksum of {name} is wrong; fetch it again")
        if not entry.size:  # an array of no bytes has no strides to view by
            return torch.empty(entry.shape, dtype=dtype)
        return torch.from_numpy(raw).view(dtype).reshape(entry.shape)

    def _dtype(self, name: str) -> torch.dtype:
        entry = self.entries[name]
        if entry.is_sliced:
            raise BertkitError(
                f"{index_path(self.prefix)}: {name} is a partitioned variable, stored in slices, which bertkit does not "
                "read; save the checkpoint again without a partitioner"
            )
        if entry.dtype not in DTYPES:
            raise BertkitError(f"{index_path(self.prefix)}: {name} is of TensorFlow type {entry.dtype}, not of numbers")
        return DTYPES[entry.dtype]


def index_path(prefix: Path) -> Path:
    """The index file of a checkpoint prefix."""
    return prefix.with_name(prefix.name + ".index")


def open_bundle(prefix: Path) -> Bundle:
    """The index of the checkpoint X whose files are X.index and X.data-*."""
    path = index_path(prefix)
    try:
        table = dict(read_table(path.read_bytes()))
        num_shards = _read_header(table.pop(HEADER_KEY, b""))
        entries = {key.decode(): _read_entry(value) for key, value in table.items()}
    except OSError as error:
        raise BertkitError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise BertkitError(f"{path} is damaged: {error}") from None
    return Bundle(prefix, num_shards, entries)


def _read_header(data: bytes) -> int:
    fields = dict(read_fields(data))
    num_shards, endianness = fields.get(1, 0), fields.get(2, 0)
    if not isinstance(num_shards, int) or num_shards < 1:
        raise ValueError("its header is missing")
    if endianness:
        raise ValueError("its numbers are big-endian, which bertkit does not read")
    return num_shards


def _read_entry(data: bytes) -> Entry:
    numbers: dict[int, int] = {}
    shape: tuple[int, ...] = ()
    is_sliced = False
    for field, value in read_fields(data):
        if field == 2 and isinstance(value, bytes):
            shape = _read_shape(value)
        elif field == 7:
            is_sliced = True
        elif isinstance(value, int):
            numbers[field] = value
    dtype, shard, offset, size, crc = (numbers.get(field, 0) for field in (1, 3, 4, 5, 6))
    return Entry(dtype, shape, shard, offset, size, crc, is_sliced)


def _read_shape(data: bytes) -> tuple[int, ...]:
    dims = [dict(read_fields(value)) for field, value in read_fields(data) if field == 2 and isinstance(value, bytes)]
    sizes = (dim.get(1, 0) for dim in dims)
    return tuple(size if isinstance(size, int) and size < 2**63 else -1 for size in sizes)


def write_bundle(prefix: Path, tensors: Mapping[str, Tensor]) -> list[Path]:
    """Write the tensors as checkpoint X: X.index and one data file. What was written comes back."""
    bundle = Bundle(prefix, 1, {})
    header = write_int(1, bundle.num_shards) + write_bytes(3, write_int(1, PRODUCER))
    table, offset = [(HEADER_KEY, header)], 0
    with bundle.shard(0).open("wb") as file:
        for name in sorted(tensors, key=str.encode):
            raw = tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            table.append((name.encode(), _write_entry(tensors[name], offset, raw.size, masked(crc32c(raw)))))
            raw.tofile(file)
            offset += raw.size
    index_path(prefix).write_bytes(write_table(table))
    return [bundle.shard(0), index_path(prefix)]


def _write_entry(tensor: Tensor, offset: int, size: int, crc: int) -> bytes:
    shape = b"".join(write_bytes(2, write_int(1, dim)) for dim in tensor.shape)
    place = write_int(4, offset) + write_int(5, size) + write_fixed32(6, crc)
    return write_int(1, NUMBERS[tensor.dtype]) + write_bytes(2, shape) + place
