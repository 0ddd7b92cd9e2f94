"""Devices that are not there are one line that says which are."""

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.training.world import choose_device


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(BertkitError, match="no device is named 'gpu'; use cpu, cuda or auto"):
        choose_device("gpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(BertkitError, match=r"there is no GPU here .*; choose the device cpu or auto"):
        choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(BertkitError, match="no GPU for local rank 2: 2 here; start fewer"):
        choose_device("cuda")
