from pathlib import Path

import pytest

from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from tests.studies.toy_data import make_data
from tests.training.tiny_tasks import make_base


@pytest.fixture(scope="session")
def bert() -> Bert:
    """An untrained BERT over the sample vocabulary, with weights so large that predictions differ visibly."""
    return untrained(0, num_layers=3, hidden_size=32, intermediate_size=64, max_positions=64, initializer_range=0.3)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy data folder."""
    return make_data(tmp_path_factory.mktemp("data") / "toy")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint for the toy data, with all heads of pre-training."""
    folder = tmp_path_factory.mktemp("base") / "tiny-bert"
    make_base(folder)
    return str(folder)
