"""Structured logs: one JSON object a line on standard error, for machines, and never a word of a user's text."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False).encode  # made once: json.dumps would make one a line


def log(level: str, event: str, **fields: Any) -> None:
    """Write one line; fields that are None are left out."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    kept = {name: value for name, value in fields.items() if value is not None}
    sys.stderr.write(_encode({"time": now, "level": level, "event": event, **kept}) + "\n")
    sys.stderr.flush()


def where(error: BaseException) -> str:
    """What went wrong and at which line; the message is left out, since it may hold a user's text."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = "" if last is None else f" at {Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}"
    return f"{type(error).__name__}{place}"
