from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from bertkit.inference.bert import Bert
from tests.serve.serving import all_kinds, client_of


@pytest.fixture(scope="session")
def berts() -> dict[str, Bert]:
    """A tiny model of every kind, by name."""
    return all_kinds()


@pytest.fixture(scope="module")
def client(berts: dict[str, Bert]) -> Iterator[TestClient]:
    """A client of all of them, in this process."""
    with client_of(berts) as made:
        yield made
