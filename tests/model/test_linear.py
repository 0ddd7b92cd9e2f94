"""Products in bfloat16 on a CPU have few shapes and the same numbers; all others are left as they are."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.model.linear import Linear, product


def test_few_numbers_of_rows_reach_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, seen = F.linear, set[int]()

    def watched(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        seen.add(rows.shape[0])
        return plain(rows, weight, bias)

    monkeypatch.setattr(F, "linear", watched)
    weight = torch.randn(4, 8).bfloat16()
    for num in range(300):
        assert product(torch.randn(num, 8).bfloat16(), weight).shape == (num, 4)
    assert seen == {0, 16, 32, 48, 64, 128, 192, 256, 320}
    seen.clear()
    product(torch.randn(17, 8), weight.float())
    assert seen == {17}


@pytest.mark.parametrize("num", [1, 17, 64, 65])
def test_numbers_and_gradients_are_those_of_the_rows_alone(num: int) -> None:
    torch.manual_seed(0)
    layer = Linear(8, 4).bfloat16()
    rows, grad = torch.randn(num, 8).bfloat16(), torch.randn(num, 4).bfloat16()
    found = []
    for run in (layer, lambda x: F.linear(x, layer.weight, layer.bias)):
        given = rows.clone().requires_grad_()
        made = run(given)
        made.backward(grad)
        found.append([made, given.grad, layer.weight.grad, layer.bias.grad])
        layer.zero_grad()
    for ours, theirs in zip(*found, strict=True):
        assert ours is not None
        assert theirs is not None
        assert torch.allclose(ours.float(), theirs.float(), rtol=2**-7, atol=2**-7)
