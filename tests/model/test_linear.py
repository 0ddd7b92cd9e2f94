"""Products by oneDNN have few shapes, and by each choice the same numbers; all others are PyTorch's own."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.model import linear
from bertkit.model.linear import Linear, multiply_each, product

FEW_ROWS = {16, 32, 48, 64, 128, 192, 256, 320}


@pytest.fixture
def _slow_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "has_slow_mkl", lambda: True)


@pytest.fixture
def _fast_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "has_slow_mkl", lambda: False)


def watch(monkeypatch: pytest.MonkeyPatch, place: object, name: str) -> set[int]:
    """The numbers of rows that reach this function from now on."""
    plain: Callable[..., Tensor] = getattr(place, name)
    seen: set[int] = set()

    def watched(rows: Tensor, *others: Tensor | None) -> Tensor:
        seen.add(rows.shape[0])
        return plain(rows, *others)

    monkeypatch.setattr(place, name, watched)
    return seen


def multiply_many(weight: Tensor) -> None:
    for num in range(1, 300):
        assert product(torch.randn(num, 8, dtype=weight.dtype), weight).shape == (num, 4)


def test_few_numbers_of_rows_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch, F, "linear")
    multiply_many(torch.randn(4, 8).bfloat16())
    assert seen == FEW_ROWS


@pytest.mark.usefixtures("_slow_mkl")
def test_few_numbers_of_rows_in_float32_where_mkl_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, others = watch(monkeypatch, linear, "_multiply"), watch(monkeypatch, F, "linear")
    multiply_many(torch.randn(4, 8))
    assert (seen, others) == (FEW_ROWS, set())


@pytest.mark.usefixtures("_fast_mkl")
def test_float32_is_left_to_mkl_where_it_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, others = watch(monkeypatch, F, "linear"), watch(monkeypatch, linear, "_multiply")
    multiply_many(torch.randn(4, 8))
    assert (seen, others) == (set(range(1, 300)), set())


@pytest.mark.usefixtures("_slow_mkl")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("num", [0, 1, 17, 64, 65])
def test_numbers_and_gradients_are_those_of_the_rows_alone(num: int, has_bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = Linear(8, 4, bias=has_bias).to(dtype)
    rows, grad = torch.randn(num, 8, dtype=dtype), torch.randn(num, 4, dtype=dtype)
    found = []
    for run in (layer, lambda x: F.linear(x, layer.weight, layer.bias)):
        given = rows.clone().requires_grad_()
        made = run(given)
        made.backward(grad)
        assert given.grad is not None
        found.append([made, given.grad, *(p.grad for p in layer.parameters())])
        layer.zero_grad()
    close = 2**-7 if dtype == torch.bfloat16 else 1e-5
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == dtype
        assert torch.allclose(ours.double(), theirs.double(), rtol=close, atol=close)


@pytest.mark.usefixtures("_slow_mkl")
def test_a_frozen_weight_gets_no_gradient() -> None:
    layer = Linear(8, 4)
    layer.weight.requires_grad_(False)
    rows = torch.randn(3, 8, requires_grad=True)
    layer(rows).sum().backward()
    assert layer.weight.grad is None
    assert rows.grad is not None
    with torch.inference_mode():
        assert layer(torch.randn(3, 8)).shape == (3, 4)


@pytest.mark.usefixtures("_slow_mkl")
def test_stacks_of_matrices() -> None:
    left, right = torch.randn(3, 5, 8), torch.randn(3, 8, 6).mT
    assert torch.allclose(multiply_each(left, right), left @ right.mT, atol=1e-5)
