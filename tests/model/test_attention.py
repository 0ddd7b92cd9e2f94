"""Attention backends agree with each other and with float64, and sequences never see each other."""

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model import PackedBatch, pack
from bertkit.model.attention import Backend, PlainAttention, Run, RunsAttention, SdpaAttention, prepare

MIXED = (5, 1, 9, 2)
EQUAL = (4, 4, 4)
RUNS = (3, 3, 0, 3, 0, 7, 2, 2)
WAYS = [("sdpa", RunsAttention), ("sdpa", SdpaAttention), ("plain", PlainAttention)]  # on a CPU sdpa trains in runs


def make_batch(lengths: tuple[int, ...]) -> PackedBatch:
    return pack([[7] * length for length in lengths])


def in_float64(qkv: torch.Tensor, lengths: tuple[int, ...]) -> torch.Tensor:
    parts = []
    for part in qkv.double().split(lengths):
        query, key, value = part.permute(1, 2, 0, 3)  # each [H, S, E]
        weights = torch.softmax(query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5, dim=-1)
        parts.append((weights @ value).transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize("lengths", [MIXED, EQUAL, RUNS])
@pytest.mark.parametrize(("backend", "kind"), WAYS)
def test_backends_equal_float64(backend: Backend, kind: type, lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(sum(lengths), 3, 2, 8)
    with torch.set_grad_enabled(kind is not SdpaAttention):
        attend = prepare(make_batch(lengths), qkv.dtype, backend)
        mixed = attend(qkv, 0.0)
    assert type(attend) is kind
    assert (mixed - in_float64(qkv, lengths)).abs().max() < 1e-6


def test_sequences_of_one_length_side_by_side_are_a_run() -> None:
    runs = Run.of(make_batch(RUNS).cu_seqlens)
    assert runs == [Run(0, 9, 3), Run(9, 16, 7), Run(16, 20, 2)]
    assert Run.of(make_batch((0, 4)).cu_seqlens) == [Run(0, 4, 4)]


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_of_runs_are_those_of_padding(is_causal: bool) -> None:
    torch.manual_seed(0)
    batch, weights = make_batch(RUNS), torch.randn(sum(RUNS), 2, 8)
    qkv = torch.randn(sum(RUNS), 3, 2, 8, dtype=torch.float64, requires_grad=True)
    found = []
    for kind in (RunsAttention, SdpaAttention):
        (grad,) = torch.autograd.grad((kind(batch, is_causal=is_causal)(qkv, 0.0) * weights).sum(), qkv)
        found.append(grad)
    torch.testing.assert_close(*found)


def test_dropout_of_runs_keeps_the_mean_and_its_gradient() -> None:
    """Over many draws; what is kept is what the gradient goes through."""
    torch.manual_seed(0)
    qkv = torch.randn(5, 3, 2, 8, requires_grad=True)
    attend = RunsAttention(make_batch((3, 2)))
    draws = torch.stack([attend(qkv, 0.3) for _ in range(4000)]).mean(0)
    torch.testing.assert_close(draws, attend(qkv, 0.0), atol=0.05, rtol=0.0)
    mean, exact = (torch.autograd.grad(made.square().sum(), qkv)[0] for made in (draws, attend(qkv, 0.0)))
    torch.testing.assert_close(mean, exact, atol=0.1, rtol=0.05)


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


@pytest.mark.parametrize("kind", [RunsAttention, SdpaAttention, PlainAttention])
def test_a_sequence_does_not_see_its_neighbours(kind: type[RunsAttention | SdpaAttention | PlainAttention]) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(sum(MIXED), 3, 2, 8)
    changed = qkv.clone()
    changed[: MIXED[0]] = float("inf")  # anything that leaks shows up as NaN
    attend = kind(make_batch(MIXED))
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
