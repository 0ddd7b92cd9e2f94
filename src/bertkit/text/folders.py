"""Folders of results: made, or refused in one line; one process at a time in them."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertkit.errors import BertkitError

PATIENCE = 10.0  # seconds: a killed process's helpers, which hold its lock, end within them


def make_folder(folder: Path) -> Path:
    """There, or a clear line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BertkitError(f"{folder} cannot be made: {error.strerror or error}; choose another place") from None
    return folder


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Refuse when another process works in this folder; the lock ends with the process, however it ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + PATIENCE
        while not _take(handle):
            if time.monotonic() > until:
                raise BertkitError(f"another process is at work in {folder}; wait for it or choose another folder")
            time.sleep(0.1)
        yield
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
