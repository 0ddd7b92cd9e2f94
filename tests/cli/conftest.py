from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No model from outside, a terminal of known width, and one thread, which is quicker for small models."""
    monkeypatch.delenv("BERTKIT_MODEL", raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def bert() -> Bert:
    """Four narrow layers, few positions, and weights so large that predictions differ visibly."""
    return untrained(0, num_layers=4, hidden_size=32, intermediate_size=64, max_positions=64, initializer_range=0.5)


@pytest.fixture(scope="session")
def folder(bert: Bert, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, saved."""
    return bert.save(tmp_path_factory.mktemp("saved") / "model")
