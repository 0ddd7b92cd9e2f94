"""Attention backends agree with each other and with float64, and sequences never see each other."""

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model import PackedBatch, pack
from bertkit.model.attention import Backend, PlainAttention, prepare

MIXED = (5, 1, 9, 2)
EQUAL = (4, 4, 4)


def make_batch(lengths: tuple[int, ...]) -> PackedBatch:
    return pack([[7] * length for length in lengths])


def in_float64(qkv: torch.Tensor, lengths: tuple[int, ...]) -> torch.Tensor:
    parts = []
    for part in qkv.double().split(lengths):
        query, key, value = part.permute(1, 2, 0, 3)  # each [H, S, E]
        weights = torch.softmax(query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5, dim=-1)
        parts.append((weights @ value).transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize("lengths", [MIXED, EQUAL])
@pytest.mark.parametrize("backend", ["sdpa", "plain"])
def test_backends_equal_float64(backend: Backend, lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(sum(lengths), 3, 2, 8)
    mixed = prepare(make_batch(lengths), qkv.dtype, backend)(qkv, 0.0)
    assert (mixed - in_float64(qkv, lengths)).abs().max() < 1e-6


@pytest.mark.parametrize("lengths", [MIXED, EQUAL])
def test_in_bfloat16_a_cpu_rounds_the_result_alone(lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(sum(lengths), 3, 2, 8).bfloat16().requires_grad_()
    mixed = prepare(make_batch(lengths), qkv.dtype, "sdpa")(qkv, 0.0)
    mixed.sum().backward()
    assert mixed.dtype == qkv.dtype
    assert torch.equal(mixed, in_float64(qkv, lengths).to(qkv.dtype))
    wide = qkv.detach().double().requires_grad_()
    in_float64(wide, lengths).sum().backward()
    assert qkv.grad is not None
    assert wide.grad is not None
    assert (qkv.grad - wide.grad).abs().max() < 2**-8 * wide.grad.abs().max()


@pytest.mark.parametrize("backend", ["sdpa", "plain"])
def test_a_sequence_does_not_see_its_neighbours(backend: Backend) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(sum(MIXED), 3, 2, 8)
    changed = qkv.clone()
    changed[: MIXED[0]] = float("inf")  # anything that leaks shows up as NaN
    attend = prepare(make_batch(MIXED), qkv.dtype, backend)
    assert torch.equal(attend(qkv, 0.0)[MIXED[0] :], attend(changed, 0.0)[MIXED[0] :])


def test_plain_keeps_weights_that_sum_to_one() -> None:
    batch = make_batch(MIXED)
    attention = PlainAttention(batch)
    attention(torch.randn(sum(MIXED), 3, 2, 8), 0.0)
    (weights,) = attention.weights  # [N, H, S, S]
    for sequence, length in zip(weights, MIXED, strict=True):
        assert torch.allclose(sequence[:, :length].sum(-1), torch.ones(2, length))
        assert not sequence[:, :length, length:].any()


def test_dropout_drops() -> None:
    qkv = torch.randn(sum(MIXED), 3, 2, 8)
    for backend in ("sdpa", "plain"):
        attend = prepare(make_batch(MIXED), qkv.dtype, backend)
        assert not torch.equal(attend(qkv, 0.5), attend(qkv, 0.5))


def test_choices_are_explained() -> None:
    with pytest.raises(BertkitError, match="choose one of auto, varlen, sdpa, plain"):
        prepare(make_batch(MIXED), torch.float32, "flash")  # type: ignore[arg-type]
    with pytest.raises(BertkitError, match="use 'sdpa'"):
        prepare(make_batch(MIXED), torch.float32, "varlen")
