"""Runs: every sequence once, few lengths each, and tokens in their places."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.inference.engines.runs import NUM_BOXES, plan_runs


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 4), st.integers(1, 90))
def test_runs_hold_every_sequence_once(lengths: list[int], threads: int, most: int) -> None:
    starts = np.cumsum([0, *lengths])
    seen: list[int] = []
    tokens: list[int] = []
    for run in plan_runs(np.array(lengths), threads, most):
        assert [lengths[i] for i in run.sequences] == run.lengths.tolist() == sorted(run.lengths)
        assert len(set(run.lengths.tolist())) <= NUM_BOXES
        assert run.num_tokens <= most or len(run.sequences) == 1
        seen += run.sequences.tolist()
        tokens += run.tokens(starts).tolist()
    assert sorted(seen) == [i for i, length in enumerate(lengths) if length], "empty ones are in none"
    assert sorted(tokens) == list(range(sum(lengths)))


def test_a_run_by_hand() -> None:
    (run,) = plan_runs(np.array([3, 1, 3, 2]))
    assert run.sequences.tolist() == [1, 3, 0, 2]
    assert run.starts.tolist() == [0, 1, 3, 6]
    assert run.positions.tolist() == [0, 0, 1, 0, 1, 2, 0, 1, 2]
    assert run.tokens(np.array([0, 3, 4, 7, 9])).tolist() == [3, 7, 8, 0, 1, 2, 4, 5, 6]
    assert run.boxes(12)[:4].tolist() == [[1, 1, 12], [1, 2, 12], [2, 3, 12], [0, 0, 12]]
    vectors = np.arange(9, dtype=np.float32)[:, None]
    assert run.pool(vectors, "mean").ravel().tolist() == [0, 1.5, 4, 7]
    assert run.pool(vectors, "max").ravel().tolist() == [0, 2, 5, 8]


def test_threads_get_equal_shares() -> None:
    sizes = [run.num_tokens for run in plan_runs(np.full(64, 20), 2)]
    assert sizes == [320, 320, 320, 320]  # and not 512, 512, 256
    assert [run.num_tokens for run in plan_runs(np.array([25, 30]), 2)] == [30, 25]
    assert plan_runs(np.zeros(0, np.int64), 2) == []
