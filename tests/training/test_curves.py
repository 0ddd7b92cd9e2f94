"""Curves of long runs stay small, and end where the run ended."""

from hypothesis import given
from hypothesis import strategies as st

from bertkit.training.curves import MOST_POINTS, thin


@given(st.integers(0, 5000))
def test_a_curve_keeps_its_ends_and_its_order(num: int) -> None:
    points = list(range(num))
    thinned = thin(points)
    assert len(thinned) <= MOST_POINTS + 1
    assert thinned == sorted(set(thinned))
    assert [*thinned[:1], *thinned[-1:]] == [*points[:1], *points[-1:]]
    assert num > MOST_POINTS or thinned == points
