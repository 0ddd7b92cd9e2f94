"""Where many tokens are computed at once, and where not."""

from types import SimpleNamespace

import pytest
import torch

from bertkit.model.budgets import LARGE, PREDICTIONS, VECTORS


@pytest.mark.parametrize(
    ("device", "memory", "expected"),
    [
        ("cpu", 0, VECTORS.cpu),
        ("mps", 0, VECTORS.gpu),
        ("cuda", LARGE - 1, VECTORS.gpu),
        ("cuda", LARGE, VECTORS.large_gpu),
    ],
)
def test_a_budget_is_as_large_as_the_device(
    device: str, memory: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: SimpleNamespace(total_memory=memory))
    assert VECTORS.on(torch.device(device)) == expected
    assert PREDICTIONS.on(torch.device("cuda")) == PREDICTIONS.gpu
