"""Correlations: hand-worked cases, ties, sides that do not vary, and scipy's numbers where it is there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.tasks.metrics import NumberMetrics, pearson, spearman
from bertkit.tasks.metrics.numbers import ranks

floats = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 3))


def test_worked_by_hand() -> None:
    # means 3 and 4; products of differences 2*3 + 1*0 + 0 + 1*0 + 2*1 = 8; squares 10 and 10
    assert pearson([1, 2, 3, 4, 5], [1, 4, 6, 4, 5]) == pytest.approx(8 / np.sqrt(10 * 14))
    assert spearman([1, 2, 3, 4, 5], [10, 100, 1000, 10000, 99999]) == pytest.approx(1.0)
    # differences of ranks 0, 1, 1, 0: 1 - 6 * 2 / (4 * 15)
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert ranks([10, 20, 10, 30, 20, 20]).tolist() == [1.5, 4, 1.5, 6, 4, 4]


def test_nothing_can_be_seen_without_variation() -> None:
    for values in ([], [1.0], [0.1, 0.1, 0.1], [1e9 + 0.1] * 3):
        assert pearson(values, list(range(len(values)))) == 0.0
        assert spearman(values, list(range(len(values)))) == 0.0
    assert NumberMetrics().scores() == {"pearson": 0.0, "spearman": 0.0, "mse": 0.0}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(floats, st.sampled_from([0.0, 1.0, 2.5, -3.0])), min_size=3, max_size=30))
def test_as_scipy(pairs: list[tuple[float, float]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    x, y = zip(*pairs, strict=True)
    if len(set(x)) < 2 or len(set(y)) < 2 or np.ptp(x) < 1e-6 * max(map(abs, x)):
        return
    metrics = NumberMetrics()
    for gold, predicted in pairs:
        metrics.add(gold, predicted)
    found = metrics.scores()
    assert found["pearson"] == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-9)
    assert found["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)
    assert found["mse"] == pytest.approx(np.mean((np.array(x) - np.array(y)) ** 2))
