"""What a figure was measured with."""

import platform
from importlib import import_module


def versions(*peers: str) -> dict[str, str]:
    """Of bertkit, of torch, of the peers beside them, and of Python."""
    known = {name: str(import_module(name.replace("-", "_")).__version__) for name in ("bertkit", "torch", *peers)}
    return {**known, "python": platform.python_version()}
