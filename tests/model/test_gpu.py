"""On a CUDA device: flash attention over packed sequences, gradients, dropout, and the whole model in bf16."""

import copy

import pytest
import torch

from bertkit.model import pack, preset
from bertkit.model.attention import Backend, prepare
from bertkit.tasks.pretraining import pretraining_losses
from tests.model.reference import assert_gradients_equal, make_batch, make_pair, padded, reference_labels
from tests.model.test_attention import EQUAL, MIXED, in_float64

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run by `make test-gpu`"),
]
LONG = (512, 3, 128, 77, 1, 300)
LENGTHS = [MIXED, EQUAL, LONG]
HALVES = {torch.bfloat16: 1e-2, torch.float16: 2e-3}


def random_qkv(lengths: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(sum(lengths), 3, 4, 64, device="cuda", dtype=dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("backend", ["varlen", "sdpa", "plain"])
def test_half_precision_attention_and_its_gradient(
    backend: Backend, lengths: tuple[int, ...], dtype: torch.dtype
) -> None:
    batch = pack([[7] * n for n in lengths]).to("cuda")
    qkv = random_qkv(lengths, dtype).requires_grad_()
    exact = qkv.detach().double().requires_grad_()
    expected = in_float64(exact, lengths)
    mixed = prepare(batch, dtype, backend)(qkv, 0.0)
    weight = torch.randn_like(expected)
    (mixed.double() * weight).sum().backward()
    (expected * weight).sum().backward()
    assert qkv.grad is not None
    assert exact.grad is not None
    assert (mixed - expected).norm() / expected.norm() < HALVES[dtype]
    assert (qkv.grad - exact.grad).norm() / exact.grad.norm() < HALVES[dtype]


@pytest.mark.parametrize("backend", ["varlen", "sdpa"])
def test_causal_attention_and_its_gradient(backend: Backend) -> None:
    batch = pack([[7] * n for n in LONG]).to("cuda")
    qkv = random_qkv(LONG, torch.bfloat16).requires_grad_()
    exact = qkv.detach().float().requires_grad_()
    mixed = prepare(batch, torch.bfloat16, backend, is_causal=True)(qkv, 0.0)
    expected = prepare(batch, torch.float32, "plain", is_causal=True)(exact, 0.0)
    weight = torch.randn_like(expected)
    (mixed.float() * weight).sum().backward()
    (expected * weight).sum().backward()
    assert qkv.grad is not None
    assert exact.grad is not None
    assert (mixed - expected).norm() / expected.norm() < HALVES[torch.bfloat16]
    assert (qkv.grad - exact.grad).norm() / exact.grad.norm() < HALVES[torch.bfloat16]


@pytest.mark.parametrize("backend", ["sdpa", "plain"])
def test_float32_attention(backend: Backend) -> None:
    batch = pack([[7] * n for n in LONG]).to("cuda")
    qkv = random_qkv(LONG, torch.float32)
    assert (prepare(batch, torch.float32, backend)(qkv, 0.0) - in_float64(qkv, LONG)).abs().max() < 1e-5


def test_auto_takes_flash_attention_in_half_precision_alone() -> None:
    batch = pack([[7] * n for n in MIXED]).to("cuda")
    assert type(prepare(batch, torch.bfloat16)).__name__ == "VarlenAttention"
    assert type(prepare(batch, torch.float32)).__name__ == "SdpaAttention"


def test_attention_dropout_keeps_the_mean() -> None:
    batch = pack([[7] * n for n in LONG]).to("cuda")
    qkv = random_qkv(LONG, torch.bfloat16)
    attend = prepare(batch, torch.bfloat16, "varlen")
    whole = attend(qkv, 0.0).float()
    dropped = torch.stack([attend(qkv, 0.1).float() for _ in range(200)])
    assert not torch.equal(dropped[0], dropped[1])
    assert (dropped.mean(0) - whole).norm() / whole.norm() < 0.1


@pytest.mark.parametrize("size", ["tiny", "small", "base", "large"])
def test_float32_outputs_and_gradients_equal_the_reference(size: str) -> None:
    config = preset(size)
    model, reference = make_pair(config)
    model, reference, batch = model.cuda(), reference.cuda(), make_batch(config)
    inputs = {name: tensor.cuda() for name, tensor in padded(batch.inputs).items()}
    labels, batch = reference_labels(batch).cuda(), batch.to("cuda")
    theirs = reference(**inputs, labels=labels, next_sentence_label=batch.next_labels)
    losses = pretraining_losses(model, batch)
    total = losses.total(len(batch.masked_token_ids), len(batch.inputs))
    assert (losses.nsp_logits - theirs.seq_relationship_logits).abs().max() < 1e-5
    assert abs(total.item() - theirs.loss.item()) < 1e-5
    total.backward()
    theirs.loss.backward()
    assert_gradients_equal(model, reference)


@pytest.mark.parametrize("backend", ["varlen", "sdpa"])
def test_bf16_is_as_close_as_the_references_own_bf16(backend: Backend) -> None:
    config = preset("base")
    model, reference = make_pair(config)
    batch = make_batch(config, LONG).inputs
    inputs = {name: tensor.cuda() for name, tensor in padded(batch).items()}
    keep = inputs["attention_mask"].bool()
    reference, half = reference.cuda(), copy.deepcopy(reference).bfloat16().cuda()
    with torch.no_grad():
        exact = reference.bert(**inputs).last_hidden_state[keep]
        theirs = half.bert(**inputs).last_hidden_state[keep].float()
        ours = model.bfloat16().cuda().encoder(batch.to("cuda"), backend=backend).float()
    their_error = (theirs - exact).norm() / exact.norm()
    our_error = (ours - exact).norm() / exact.norm()
    assert our_error <= 1.2 * their_error
    assert our_error <= 0.02
