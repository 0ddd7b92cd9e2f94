"""Kernels that fail the first time: the plain twin computes, one line says why, and nothing is hidden afterwards."""

import pytest
import torch

from bertkit.model import preset, trial
from bertkit.model.bert import BertModel
from bertkit.model.packed import pack
from bertkit.model.trial import run_or_none


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_went_well", {})


def test_what_fails_is_told_once_and_not_tried_again() -> None:
    calls = []

    def fail() -> torch.Tensor:
        calls.append(1)
        raise RuntimeError("Failed to find C compiler.\nLine two")

    with pytest.warns(UserWarning, match=r"PyTorch computes instead: Failed to find C compiler\.$"):
        assert run_or_none("a", fail) is None
    assert run_or_none("a", fail) is None
    assert len(calls) == 1


def test_an_error_after_it_went_well_is_an_error() -> None:
    one = torch.ones(1)
    assert run_or_none("a", lambda: one) is one
    with pytest.raises(ZeroDivisionError):
        run_or_none("a", lambda: torch.ones(1 // 0))


def test_memory_that_ran_out_says_nothing_of_the_next_batch() -> None:
    def fail() -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        run_or_none("a", fail)
    assert run_or_none("a", lambda: torch.ones(1)) is not None


def test_the_encoder_s_plain_twin_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, batch = BertModel(preset("tiny", vocab_size=50)).eval(), pack([[2, 7, 3], [2, 8, 9, 3]])
    with torch.inference_mode():
        exact = model.encoder(batch)
        monkeypatch.setattr("bertkit.model.encoder.takes_fast_inference", lambda encoder, batch: True)
        with pytest.warns(UserWarning, match="our GPU kernels do not run here"):
            found = model.encoder(batch)  # Triton has no CUDA device here, or is not here itself
        assert torch.equal(model.encoder(batch), found)
    assert torch.equal(found, exact)
