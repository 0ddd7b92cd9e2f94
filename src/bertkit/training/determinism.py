"""What makes a run repeat itself bit for bit."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def deterministic_algorithms(on: bool) -> Iterator[None]:
    """Make torch repeat itself bit for bit; on CUDA some operations are slower for it."""
    settings: Any = torch.utils.deterministic
    before, filled = torch.are_deterministic_algorithms_enabled(), settings.fill_uninitialized_memory
    if on:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may choose anew each time
    _choose_algorithms(on)
    settings.fill_uninitialized_memory = False
    try:
        yield
    finally:
        _choose_algorithms(before)
        settings.fill_uninitialized_memory = filled


def _choose_algorithms(deterministic: bool) -> None:
    """Say it only where it is news: torch imports its compiler for it, which takes most of a second."""
    if deterministic != torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(deterministic)


def seed_generators(seed: int, device: torch.device) -> None:
    """As torch.manual_seed for the generators in use, without its look at every kind of device there could be."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(seed)


def dropout_seed(seed: int, stage: int, index: int) -> int:
    """The seed of one micro-batch's dropout."""
    return int(np.random.SeedSequence((seed, stage, index)).generate_state(1, np.uint32)[0])
