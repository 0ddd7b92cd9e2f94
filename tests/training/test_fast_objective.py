"""What stands against the fast path is told, each reason forced; on a GPU tests/model/test_fast.py takes the path."""

import importlib.util
from typing import Any

import pytest
import torch

from bertkit.model import BertModel, preset
from bertkit.training.fast_objective import why_not_fast


@pytest.fixture(autouse=True)
def _on_a_gpu_with_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BertModel, "device", property(lambda model: torch.device("cuda")))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


def make_model(**changes: Any) -> BertModel:
    given = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "vocab_size": 100, **changes}
    return BertModel(preset("tiny", heads=("pooler", "mlm", "nsp"), **given))


def test_nothing_stands_against_a_plain_model_without_dropout() -> None:
    assert why_not_fast(make_model()) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hidden_dropout": 0.1}, "dropout is on"),
        ({"is_causal": True}, "the model is causal"),
        ({"activation": "relu"}, "it is made for GELU"),
        ({"hidden_size": 120, "num_heads": 5}, "heads are 24 wide"),
        ({"intermediate_size": 500}, "feed-forward layers are 500 wide, not a multiple of 16"),
    ],
)
def test_each_reason_is_told(change: dict[str, Any], reason: str) -> None:
    assert (why_not_fast(make_model(**change)) or "").startswith(reason)


def test_old_gpus_and_missing_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert why_not_fast(make_model()) == "Triton is not installed"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "compute capability 8.0" in (why_not_fast(make_model()) or "")
