"""Eight-bit weights: rounding by output, smoothing that changes nothing exactly, and sizes of channels."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import save
from torch import nn

from bertkit.errors import BertkitError
from bertkit.export.channels import load_channels, measure_channels, save_channels
from bertkit.export.graph import FLOAT, Graph
from bertkit.export.linear import GELU_STEPS, LEAST_PEAK, NarrowLinears, narrow, signed_sums_are_exact, smoothing
from bertkit.inference.fresh import untrained

WEIGHTS = arrays(np.float32, (5, 7), elements=st.floats(-100, 100, width=32))


def test_weights_by_hand() -> None:
    small = narrow(np.array([[1.0, -2.0, 0.5], [0.0, 0.1, 0.0]], np.float32))
    np.testing.assert_array_equal(small.weights.T, [[64, -127, 32], [0, 127, 0]])
    np.testing.assert_allclose(small.scales, [2 / 127, 0.1 / 127])


@settings(deadline=None)
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
    save_channels(tmp_path / "c.safetensors", largest, bert.model)
    read = load_channels(tmp_path / "c.safetensors", bert.model)
    assert read is not None
    assert all(np.array_equal(read[key], largest[key]) for key in largest)


def test_channels_of_other_weights_are_not_taken(tmp_path: Path) -> None:
    bert, path = untrained(0, num_layers=1), tmp_path / "c.safetensors"
    largest = measure_channels(bert.model, [[2, 5, 3]])
    save_channels(path, largest, bert.model)
    with torch.no_grad():
        bert.model.encoder.embeddings.norm.bias[0] += 1
    assert load_channels(path, bert.model) is None
    path.write_bytes(save(largest))  # as before channels were marked
    assert load_channels(path, bert.model) is not None
    with pytest.raises(BertkitError, match="does not belong to this model"):
        load_channels(path, untrained(0, num_layers=3).model)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(BertkitError, match=r"cannot be read .*; export it again with --int8"):
        load_channels(path, bert.model)


def product_of(layer: nn.Linear, rows: np.ndarray, key: str, num: int = 1, *, signed: bool = False) -> np.ndarray:
    """What the graph of one eight-bit product gives, or of so many side by side."""
    graph = Graph()
    hidden = graph.add_input("hidden", ["tokens", layer.in_features], FLOAT)
    found = NarrowLinears({}, follows_gelu=True, signed=signed).products(graph, hidden, layer, num, key=key)
    graph.add("Concat", *found, axis=1, output="product")
    model = graph.finish({"product": ("tokens", layer.out_features)}, {})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    product: np.ndarray = session.run(None, {"hidden": rows.astype(np.float32)})[0]
    return product


def test_several_products_are_the_parts_of_one() -> None:
    """Bit for bit: whether a text runs alone (one product) or with others (three) may change nothing."""
    layer = nn.Linear(16, 12)
    rows = np.random.default_rng(0).normal(size=(7, 16))
    np.testing.assert_array_equal(product_of(layer, rows, "0.qkv", 3), product_of(layer, rows, "0.qkv"))


def test_a_row_of_zeros_gives_zeros() -> None:
    layer = nn.Linear(8, 3)
    found = product_of(layer, np.array([[0.0] * 8, [1.0] * 8, [1e-30] * 8]), "0.attention_output")
    np.testing.assert_array_equal(found[0], 0.0)
    np.testing.assert_allclose(found[1], layer.weight.detach().numpy().sum(axis=1), atol=0.02)
    assert np.abs(found[2]).max() < 1e-28


@pytest.mark.parametrize("signed", [False, True])
def test_sums_of_the_largest_bytes_are_not_cut(signed: bool) -> None:
    """Signed weights fail here on an x86 CPU that has no VNNI; the trial must say so."""
    layer = nn.Linear(64, 8, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(0.5, 1, 8)[:, None].expand(8, 64))
    found = product_of(layer, np.array([[1.0] * 64, [-1.0] * 64]), "0.attention_output", signed=signed)
    exact = 64 * np.linspace(0.5, 1, 8)
    is_exact = np.allclose(found, [exact, -exact], rtol=1e-5)
    assert is_exact == (signed_sums_are_exact() or not signed)


@pytest.mark.skipif(not signed_sums_are_exact(), reason="this CPU cuts sums of unsigned and signed bytes")
def test_signed_and_unsigned_weights_are_equal_to_the_bit() -> None:
    layer, rows = nn.Linear(16, 12), np.random.default_rng(0).normal(size=(7, 16))
    np.testing.assert_array_equal(product_of(layer, rows, "0.up", signed=True), product_of(layer, rows, "0.up"))


@pytest.mark.parametrize("peak", [0.0, 0.3, 0.9, 5.0])
def test_the_least_that_gelu_gives_is_not_cut(peak: float) -> None:
    """-0.17 beside any largest value comes back within half a step."""
    layer = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(4))
    row = np.array([[-0.17, peak, -0.05, 0.1 * peak]])
    half_a_step = max(peak, LEAST_PEAK) / GELU_STEPS / 2
    assert np.abs(product_of(layer, row, "0.down") - row).max() <= half_a_step * 1.01
