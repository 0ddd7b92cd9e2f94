"""Functions that jobs of tests call, also in worker processes."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from bertkit.errors import BertkitError


def double(number: int, progress: Callable[[float], None]) -> int:
    progress(0.5)
    return 2 * number


def refuse(progress: Callable[[float], None]) -> None:
    raise BertkitError("the file is not there; name another")


def die(progress: Callable[[float], None]) -> None:
    os._exit(3)


def save_when_told(path: str, progress: Callable[[float], None]) -> None:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    while not told:
        progress(0.1)
        time.sleep(0.01)
    progress(0.2)
    Path(path).write_text("saved", encoding="utf-8")


def go_on(progress: Callable[[float], None]) -> None:
    while True:
        progress(0.1)
        time.sleep(0.01)
