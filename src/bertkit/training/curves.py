"""A run's curve, in no more points than a page can show."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
MOST_POINTS = 600


def thin(points: Sequence[T]) -> list[T]:
    """Every so many of them, and the last, which is where the run ended."""
    every = max(1, -(-len(points) // MOST_POINTS))
    ends = [] if (len(points) - 1) % every == 0 else points[-1:]
    return [*points[::every], *ends]
