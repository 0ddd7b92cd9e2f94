"""Eight-bit weights: rounding by output, smoothing that changes nothing exactly, and sizes of channels."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bertkit.errors import BertkitError
from bertkit.export.channels import load_channels, measure_channels, save_channels
from bertkit.export.linear import narrow, smoothing
from bertkit.inference.fresh import untrained

WEIGHTS = arrays(np.float32, (5, 7), elements=st.floats(-100, 100, width=32))


def test_weights_by_hand() -> None:
    small = narrow(np.array([[1.0, -2.0, 0.5], [0.0, 0.1, 0.0]], np.float32))
    np.testing.assert_array_equal(small.weights.T, [[64, -127, 32], [0, 127, 0]])
    np.testing.assert_allclose(small.scales, [2 / 127, 0.1 / 127])
    np.testing.assert_allclose(small.sums(), [(64 - 127 + 32) * 2 / 127, 0.1], rtol=1e-6)


@given(WEIGHTS)
def test_no_weight_moves_more_than_half_a_step(weights: np.ndarray) -> None:
    small = narrow(weights)
    assert np.abs(small.weights.astype(int)).max() <= 127
    back = small.weights.T * small.scales[:, None]
    assert (np.abs(back - weights) <= small.scales[:, None] * 0.5001).all()


@given(WEIGHTS, arrays(np.float32, 7, elements=st.floats(0, 1000, width=32)), st.sampled_from([0.0, 0.5, 1.0]))
def test_factors_are_positive_and_finite(weights: np.ndarray, largest: np.ndarray, share: float) -> None:
    factors = smoothing(largest, weights, share)
    assert np.isfinite(factors).all()
    assert (factors > 0).all()


def test_a_large_channel_gets_a_large_factor() -> None:
    factors = smoothing(np.array([1, 1, 100], np.float32), np.ones((2, 3), np.float32), 0.5)
    np.testing.assert_allclose(factors, [1, 1, 10])


def test_channels_are_measured_written_and_read(tmp_path: Path) -> None:
    bert = untrained(0, num_layers=2)
    largest = measure_channels(bert.model, bert.tokenizer.encode_ids(["the dog sleeps", "a cat"]))
    assert sorted(largest) == ["0.qkv", "0.up", "1.qkv", "1.up"]
    more = measure_channels(bert.model, bert.tokenizer.encode_ids(["the dog sleeps", "a cat", "penguins swim"]))
    assert all((more[key] >= largest[key] - 1e-6).all() for key in largest)
    save_channels(tmp_path / "c.safetensors", largest)
    read = load_channels(tmp_path / "c.safetensors", bert.model)
    assert all(np.array_equal(read[key], largest[key]) for key in largest)
    with pytest.raises(BertkitError, match="does not belong to this model"):
        load_channels(tmp_path / "c.safetensors", untrained(0, num_layers=3).model)
