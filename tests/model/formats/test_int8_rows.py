"""Matrices in eight bits: the layout by hand, the bound on every value, and nobody who takes integers for weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.torch import load_file, save_file

from bertkit.errors import BertkitError
from bertkit.model.formats import load_model, save_model
from bertkit.model.formats.int8_rows import NAME, read_int8, shrink, shrink_rows
from tests.model.formats.peers import (
    assert_one_line,
    assert_same,
    distance,
    load_peer,
    make_batch,
    make_model,
    our_outputs,
    peer_outputs,
)


def test_rows_by_hand(tmp_path: Path) -> None:
    matrix = torch.tensor([[1.27, -0.5, 0.004], [0.0, 0.0, 0.0], [-2.54, 2.54, 1.0]])
    stored = shrink({"m": matrix, "bias": torch.tensor([0.1, 0.2])})
    assert stored["m"].dtype == torch.int8
    assert stored["m"].tolist() == [[127, -50, 0], [0, 0, 0], [-127, 127, 50]]
    assert stored["m.scales"].tolist() == pytest.approx([0.01, 0.0, 0.02])
    save_file(stored, tmp_path / NAME)
    read = read_int8(tmp_path / NAME)
    assert set(read) == {"m", "bias"}
    assert read["m"].tolist() == [pytest.approx(row) for row in ([1.27, -0.5, 0], [0, 0, 0], [-2.54, 2.54, 1.0])]
    assert torch.equal(read["bias"], torch.tensor([0.1, 0.2]))


@given(arrays(np.float32, array_shapes(min_dims=2, max_dims=2), elements=st.floats(-65536, 65536, width=32)))
def test_no_value_is_off_by_more_than_half_a_scale(values: np.ndarray) -> None:
    matrix = torch.from_numpy(values)
    rows, scales = shrink_rows(matrix)
    error = (rows.double() * scales.double()[:, None] - matrix.double()).abs()
    assert bool((error <= 0.5001 * scales.double()[:, None] + 1e-37).all())


@pytest.mark.parametrize("head", ["mlm", "classifier", "tagger", "span"])
def test_a_model_comes_back_nearly_and_then_stays(head: str, tmp_path: Path) -> None:
    model = make_model(*(("pooler",) if head == "classifier" else ()), head)
    save_model(model, tmp_path / "first", layout="int8")
    once, report = load_model(tmp_path / "first")
    assert (report.format, report.dtypes) == ("int8 safetensors", ("float32",))
    near = distance(our_outputs(once, make_batch()), our_outputs(model, make_batch()))
    assert 0 < near < 0.2
    save_model(once, tmp_path / "second", layout="int8")
    again, _ = load_model(tmp_path / "second" / NAME)
    for name, tensor in again.state_dict().items():
        torch.testing.assert_close(tensor, once.state_dict()[name], rtol=1e-6, atol=1e-9, msg=name)
    assert again.config == once.config


def test_matrices_are_integers_and_the_tied_decoder_is_stored_once(tmp_path: Path) -> None:
    save_model(make_model("pooler", "mlm", "nsp").half(), tmp_path, layout="int8")
    stored = load_file(tmp_path / NAME)
    assert not [name for name in stored if "decoder" in name]
    kinds = {tensor.dim(): tensor.dtype for name, tensor in stored.items() if not name.endswith(".scales")}
    assert kinds == {1: torch.float32, 2: torch.int8}


def test_the_ecosystem_refuses_it_and_loads_what_is_converted(tmp_path: Path) -> None:
    save_model(make_model("span"), tmp_path / "small", layout="int8")
    with pytest.raises(OSError, match=r"model\.safetensors"):
        transformers.BertForQuestionAnswering.from_pretrained(tmp_path / "small")
    ours, _ = load_model(tmp_path / "small", dtype=None)
    save_model(ours, tmp_path / "plain")
    assert_same(load_model(tmp_path / "plain")[0], ours)
    peer = load_peer("BertForQuestionAnswering", tmp_path / "plain")
    assert distance(our_outputs(ours, make_batch()), peer_outputs(peer, make_batch())) < 1e-5


def test_lost_scales_and_infinite_weights_are_refused(tmp_path: Path) -> None:
    save_model(make_model("span"), tmp_path, layout="int8")
    stored = load_file(tmp_path / NAME)
    name = next(name for name in stored if name.endswith(".scales"))
    save_file({key: tensor for key, tensor in stored.items() if key != name}, tmp_path / NAME)
    with pytest.raises(BertkitError) as caught:
        load_model(tmp_path)
    assert_one_line(caught.value, NAME, name.removesuffix(".scales"), "write the file anew")
    with pytest.raises(BertkitError, match="not finite"):
        shrink_rows(torch.tensor([[1.0, float("inf")]]))
