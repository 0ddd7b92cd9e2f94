"""What makes a run repeat itself bit for bit."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def deterministic_algorithms(on: bool) -> Iterator[None]:
    """Make torch repeat itself bit for bit; on CUDA some operations are slower for it."""
    before = torch.are_deterministic_algorithms_enabled()
    if on:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may choose anew each time
    torch.use_deterministic_algorithms(on)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
