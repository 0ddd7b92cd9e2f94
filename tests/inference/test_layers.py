"""Which layers are taken and how they are joined, against the same worked out by hand."""

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.inference.layers import check_layer, combine_layers, layer_width

STATES = [torch.full((2, 3), float(10**number)) for number in range(6)]  # embeddings and five layers


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (0, 1.0),
        (2, 100.0),
        (-1, 100_000.0),
        ("embeddings", 1.0),
        ("last", 100_000.0),
        ("second-to-last", 10_000.0),
        ("sum-last-4", 111_100.0),
        ("mean-last-4", 27_775.0),
        ("mean-last-2", 55_000.0),
        ("sum-all", 111_110.0),  # without the embeddings, as the paper's "all 12 layers"
    ],
)
def test_one_vector_of_one_layers_width(choice: int | str, expected: float) -> None:
    assert torch.equal(combine_layers(STATES, choice), torch.full((2, 3), expected))
    assert layer_width(choice, 5, 3) == 3


@pytest.mark.parametrize(("choice", "first", "count"), [("concat-last-4", 2, 4), ("weighted-all", 1, 5)])
def test_layers_side_by_side_lowest_first(choice: str, first: int, count: int) -> None:
    joined = combine_layers(STATES, choice)
    assert torch.equal(joined, torch.cat(STATES[first:], dim=-1))
    assert joined.shape[1] == layer_width(choice, 5, 3) == 3 * count


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (6, "no layer 6: this model has 0"),
        (-7, "no layer -7"),
        ("sum-last-6", "'sum-last-6' needs 6 layers and this model has 5"),
        ("sum-last-0", "unknown layer 'sum-last-0'"),
        ("lst", "unknown layer 'lst'; give a number, embeddings, last"),
        ("", "unknown layer ''"),
    ],
)
def test_what_is_not_there(choice: int | str, said: str) -> None:
    with pytest.raises(BertkitError, match=said):
        check_layer(choice, 5)
