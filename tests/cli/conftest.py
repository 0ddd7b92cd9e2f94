from pathlib import Path

import pytest

from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model from outside, and a terminal of known width."""
    monkeypatch.delenv("BERTKIT_MODEL", raising=False)
    monkeypatch.setenv("COLUMNS", "300")


@pytest.fixture(scope="session")
def bert() -> Bert:
    """Four narrow layers, few positions, and weights so large that predictions differ visibly."""
    return untrained(0, num_layers=4, hidden_size=32, intermediate_size=64, max_positions=64, initializer_range=0.5)


@pytest.fixture(scope="session")
def folder(bert: Bert, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, saved."""
    return bert.save(tmp_path_factory.mktemp("saved") / "model")
