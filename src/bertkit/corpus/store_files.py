"""Files of a token store: written block by block, aside and hashed, synced and renamed; read by memory-mapping.

So a file with its final name is complete, whenever the writing process was killed.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bertkit.errors import BertkitError

BLOCK_BYTES = 1 << 22
PAGE = 1 << 12
MOST_OPEN = 1 << 16  # Linux maps no more than about so many files


@dataclass(frozen=True)
class StoredFile:
    """A file as the manifest knows it."""

    name: str
    size: int
    sha256: str


class ArrayWriter:
    """One array to a file, block by block: written aside, hashed on the way, synced, and renamed when complete."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self.size = 0
        self._aside = aside_path(path)
        self._file = self._aside.open("wb", buffering=BLOCK_BYTES)
        self._hash = hashlib.sha256()

    def write(self, array: NDArray[Any]) -> None:
        """Append values; they must fit the type."""
        data = np.ascontiguousarray(array, dtype=self.dtype).data.cast("B") if array.size else b""
        self._hash.update(data)
        self._file.write(data)
        self.size += len(data)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            finish_file(self._file, self._aside, self.path)
        else:
            self._file.close()

    @property
    def stored(self) -> StoredFile:
        """What the manifest says about the file."""
        return StoredFile(self.path.name, self.size, self._hash.hexdigest())


class ArrayReader:
    """One array from a file, block by block; unlike a map, it never holds more than the block in memory."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self._file = path.open("rb", buffering=0)
        self._dtype = np.dtype(dtype)

    def take(self, count: int) -> NDArray[Any]:
        """The next values; fewer at the end of the file."""
        return np.fromfile(self._file, self._dtype, count)

    def __enter__(self) -> ArrayReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def aside_path(path: Path) -> Path:
    """Where this process writes a file before it is complete; a killed one's leftovers are never written to again."""
    return path.with_name(f"{path.name}.{os.getpid()}.tmp")


def plain_name(path: Path) -> str:
    """A file's name as text files can hold it: bytes that are no UTF-8 show as a replacement character."""
    return path.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def replace_text(path: Path, text: str) -> None:
    """Write a small text file so that it is there whole or not at all, also after a crash."""
    aside = aside_path(path)
    with aside.open("wb") as file:
        file.write(text.encode())
        finish_file(file, aside, path)


def finish_file(file: Any, aside: Path, path: Path) -> None:
    """Sync an open file and its folder, and give it its name."""
    with file:
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def hash_file(path: Path) -> str:
    """The SHA-256 of a file, read in blocks."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise BertkitError(f"{path} cannot be read: {error.strerror or error}") from None
    return digest.hexdigest()


def map_array(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    """A file of values, memory-mapped for reading; one that fills no page, which a map takes, is read instead."""
    if path.stat().st_size <= PAGE:
        values = np.fromfile(path, dtype)
        values.flags.writeable = False
        return values
    mapped = np.memmap(path, dtype, mode="r")
    return np.asarray(mapped)  # a plain view: slicing a memmap object is several times slower


def allow_open_files(count: int) -> None:
    """Let this process, and those that it starts, hold so many files open; Linux grants 1024 unless asked for more."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
    except ImportError:  # a system without such limits
        return
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft != RLIM_INFINITY and soft < 2 * count:  # others need some too
        most = MOST_OPEN if hard == RLIM_INFINITY else min(hard, MOST_OPEN)
        setrlimit(RLIMIT_NOFILE, (max(soft, most), hard))
