import pytest

from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained


@pytest.fixture(scope="session")
def bert() -> Bert:
    """A tiny untrained BERT over the sample vocabulary; its four layers allow every layer choice."""
    return untrained(0, num_layers=4)
