"""On a CUDA device: every kernel and its gradient against float64, and the fast model against the plain one."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.model import preset
from bertkit.model.bert import BertModel
from bertkit.model.fast_inference import takes_fast_inference
from bertkit.model.packed import PackedBatch, pack
from bertkit.tasks.pretraining import IGNORED, PretrainingBatch
from bertkit.training.fast_objective import FastObjective, choose_objective, why_not_fast
from bertkit.training.initialisation import initialise
from bertkit.training.objective import Objective
from bertkit.training.stepping import LoopOptions

pytest.importorskip("triton", reason="Triton comes with torch for CUDA")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run by `make test-gpu`"),
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),  # the first product of a backward thread
]
SHORT = (128, 0, 5, 77, 128, 1, 64)
LONG = (512, 3, 0, 128, 77, 1, 300, 129)
BF16, EIGHT = 8e-3, 5e-2  # how far results may be off: a few roundings of the type


def off(result: Tensor, exact: Tensor) -> float:
    result, exact = result.detach().double(), exact.detach().double()
    return float((result - exact).norm() / exact.norm())


def random(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, device="cuda") * scale


def twins(*tensors: Tensor) -> list[Tensor]:
    return [tensor.double().requires_grad_() for tensor in tensors]


def exact_attention(qkv: Tensor, lengths: tuple[int, ...]) -> Tensor:
    parts = [part.permute(1, 2, 0, 3) for part in qkv.split(list(lengths)) if len(part)]  # [3, H, S, E]
    return torch.cat([F.scaled_dot_product_attention(*part).transpose(0, 1) for part in parts])


@pytest.mark.parametrize("lengths", [SHORT, LONG])
def test_attention(lengths: tuple[int, ...]) -> None:
    from bertkit.model.kernels.attention import attention_backward, attention_forward
    from bertkit.model.kernels.long_attention import long_attention_backward, long_attention_forward

    torch.manual_seed(0)
    cu_seqlens = torch.tensor([0, *lengths], device="cuda").cumsum(0, dtype=torch.int32)
    qkv, bias = random(sum(lengths), 3, 4, 64).bfloat16(), random(3 * 4 * 64)
    shifted = (qkv.float().flatten(1) + bias).bfloat16().view_as(qkv)
    (exact,) = twins(shifted)
    expected = exact_attention(exact, lengths)
    grad = random(*expected.shape).bfloat16()
    expected.backward(grad.double())
    assert exact.grad is not None
    if lengths == SHORT:
        out = attention_forward(qkv, bias, cu_seqlens, 128)
        d_qkv, d_bias = attention_backward(grad, qkv, bias, cu_seqlens, 128)
        assert off(d_bias, exact.grad.sum(0).flatten()) < BF16
    else:
        out, normalisers = long_attention_forward(shifted, cu_seqlens, 512)
        d_qkv = long_attention_backward(grad, shifted, out, normalisers, cu_seqlens, 512)
    assert off(out, expected) < BF16
    assert off(d_qkv, exact.grad) < BF16


@pytest.mark.parametrize("width", [128, 768, 1024])
@pytest.mark.parametrize("rows", [1, 1031])
def test_layer_norm(rows: int, width: int) -> None:
    from bertkit.model.kernels.layer_norm import norm_backward, norm_forward

    torch.manual_seed(0)
    product, residual = random(rows, width).bfloat16(), random(rows, width).bfloat16()
    bias, weight, shift = random(width), random(width), random(width)
    exact = twins(product, residual, bias, weight, shift)
    expected = F.layer_norm(exact[0] + exact[1] + exact[2], (width,), exact[3], exact[4], 1e-12)
    one, more = random(rows, width).bfloat16(), random(rows, width).bfloat16()
    expected.backward(one.double() + more.double())
    normed = norm_forward(product, residual, bias, weight, shift, 1e-12, eight=True)
    grads = norm_backward(
        one, product, residual, bias, weight, normed.means, normed.deviations, d_more_TD=more, eight=True
    )
    assert off(normed.out, expected) < BF16
    assert normed.rows8 is not None
    assert off(normed.rows8.values.float() * normed.rows8.scales[:, None], expected) < EIGHT
    for result, twin in zip(grads[:4], (exact[0], exact[3], exact[4], exact[2]), strict=True):
        assert twin.grad is not None
        assert off(result, twin.grad) < BF16
    assert grads.rows8 is not None
    assert off(grads.rows8.values.float() * grads.rows8.scales[:, None], grads.summed) < EIGHT


@pytest.mark.parametrize("width", [512, 3072])
def test_gelu(width: int) -> None:
    from bertkit.model.kernels.gelu import gelu_backward_, gelu_forward

    torch.manual_seed(0)
    product, bias, grad = random(515, width, scale=2.0).bfloat16(), random(width), random(515, width).bfloat16()
    exact, exact_bias = twins(product, bias)
    expected = F.gelu(exact + exact_bias)
    expected.backward(grad.double())
    assert exact.grad is not None
    assert exact_bias.grad is not None
    out, out8 = gelu_forward(product, bias, eight=True)
    scales = grad.float().abs().amax(1) / 448.0
    d_product = grad.clone()
    d_bias, d_product8 = gelu_backward_(d_product, product, bias, scales, torch.full((1,), 2.0, device="cuda"))
    assert off(out, expected) < BF16
    assert off(d_product, exact.grad) < BF16
    assert off(d_bias, exact_bias.grad) < BF16
    assert out8 is not None
    assert d_product8 is not None
    assert off(out8.values.float() * out8.scales[:, None], expected) < EIGHT
    assert off(d_product8.values.float() * d_product8.scales[:, None], exact.grad) < EIGHT


def test_cross_entropy_writes_its_gradient() -> None:
    from bertkit.model.kernels.cross_entropy import cross_entropy_

    torch.manual_seed(0)
    logits, bias, targets = random(37, 5056).bfloat16(), random(5001), torch.randint(0, 5001, (37,), device="cuda")
    targets[3] = IGNORED
    exact, exact_bias = twins(logits[:, :5001], bias)
    scores = exact + exact_bias
    expected = F.cross_entropy(scores, targets, ignore_index=IGNORED, reduction="none")
    (0.25 * expected.sum()).backward()
    assert exact.grad is not None
    losses, hits = cross_entropy_(logits, bias, targets, torch.tensor(0.25, device="cuda"))
    assert off(losses, expected) < 1e-5
    assert int(hits.sum()) == int((scores.argmax(1) == targets).sum())
    assert off(logits[:, :5001], exact.grad) < BF16
    assert not logits[:, 5001:].any()  # padding gets no gradient


def test_eight_bit_rows_of_a_stack_and_of_its_transpose() -> None:
    from bertkit.model.kernels.rows8 import narrow_rows, product8

    torch.manual_seed(0)
    stack = random(3, 256, 768, scale=0.02).bfloat16()
    for source in (stack, stack.mT):
        rows = narrow_rows(source)
        assert off(rows.values.float() * rows.scales[:, None], source.flatten(0, 1)) < EIGHT
    left, right = narrow_rows(random(1, 100, 768).bfloat16()), narrow_rows(stack)
    whole = (left.values.double() * left.scales[:, None]) @ (right.values.double() * right.scales[:, None]).t()
    assert off(product8(left, right), whole) < BF16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_with_what_follows_them(dtype: torch.dtype) -> None:
    from bertkit.model.kernels.e4m3 import ACTIVATION
    from bertkit.model.kernels.products import add_product8_, gelu_product, gelu_product8, narrow_matrix, product

    torch.manual_seed(0)
    weights, bias = random(512, 256, scale=0.05).to(dtype), random(512).to(dtype)
    for rows in (1031, 1100, 7, 1):  # the second takes over what was chosen for the first
        x = random(rows, 256).to(dtype)
        plain = x.double() @ weights.double().t()
        active = F.gelu(plain + bias.double())
        assert off(product(x, weights), plain) < BF16
        assert off(gelu_product(x, weights, bias), active) < BF16
        if dtype == torch.float16:
            continue
        x8 = (x.float() * ACTIVATION).to(torch.float8_e4m3fn)
        residual, small = random(rows, 512), narrow_matrix(weights)
        assert off(gelu_product8(x8, small, bias).float() / ACTIVATION, active) < EIGHT
        summed = add_product8_(x8, small, residual.to(dtype))
        assert off(summed, plain + residual.double()) < EIGHT
    assert product(x[:0], weights).shape == (0, 512)


def test_products_of_what_lies_oddly_in_memory() -> None:
    from bertkit.model.kernels.products import product

    torch.manual_seed(0)
    rows, weights = random(300, 257).bfloat16()[:, 1:], random(256, 512).bfloat16().t()
    assert off(product(rows, weights), rows.double() @ weights.double().t()) < BF16


def test_means_of_sequences() -> None:
    from bertkit.model.pooling import pool

    torch.manual_seed(0)
    batch = pack([[1] * length for length in (5, 128, 1, 33)]).to("cuda")
    wide = random(batch.num_tokens, 700).bfloat16()
    for hidden in (wide[:, :320].contiguous(), wide[:, 100:420]):  # the second is a part of longer rows
        exact = torch.stack([part.double().mean(0) for part in batch.split(hidden)])
        assert off(pool(hidden, batch, "mean"), exact) < 1e-5


def make_model(**changes: object) -> BertModel:
    torch.manual_seed(1)
    config = preset("small", vocab_size=1001, hidden_dropout=0.0, attention_dropout=0.0)
    return BertModel(config if not changes else preset("small", vocab_size=1001, **changes)).cuda()


def make_batch(lengths: tuple[int, ...]) -> PretrainingBatch:
    generator = torch.Generator().manual_seed(2)
    ids = [torch.randint(5, 1001, (n,), generator=generator).tolist() for n in lengths]
    segments = [[0] * (n // 2) + [1] * (n - n // 2) for n in lengths]
    packed: PackedBatch = pack(ids, segments)
    masked = torch.arange(0, packed.num_tokens, 7)
    targets = torch.randint(5, 1001, masked.shape, generator=generator)
    masked, targets = (
        torch.cat([masked, torch.zeros(5, dtype=torch.long)]),
        torch.cat([targets, torch.full((5,), -100)]),
    )
    # mostly one label: gradients of as many of each would cancel, and leave roundings
    labels = torch.tensor([IGNORED if n == 0 else int(n > 3) for n in lengths])
    return PretrainingBatch(packed, masked, targets, labels).to("cuda")


@pytest.mark.parametrize("eight", [False, True])
@pytest.mark.parametrize(("lengths", "shift"), [(SHORT, 0), (SHORT, 300), (LONG, 0)])
def test_the_fast_model_has_the_plain_one_s_loss_and_gradients(
    lengths: tuple[int, ...], shift: int, eight: bool
) -> None:
    model, batch = make_model(), make_batch(lengths)
    if shift:  # rows that begin at another position
        moved = replace(batch.inputs, position_ids=batch.inputs.position_ids + shift, reach=max(lengths) + shift)
        batch = replace(batch, inputs=moved)
    used = batch.masked_token_ids != IGNORED
    counts = torch.tensor([float(used.sum()), float((batch.next_labels != IGNORED).sum())], device="cuda")
    results = []
    for objective in (Objective(model), FastObjective(model, eight=eight)):
        model.zero_grad(set_to_none=True)
        loss, sums = objective(batch, counts)
        (2.0 * loss).backward()  # as the loop scales it in several processes
        results.append((loss.item(), sums.tolist(), {name: p.grad for name, p in model.named_parameters()}))
    (plain, plain_sums, plain_grads), (fast, fast_sums, fast_grads) = results
    assert fast == pytest.approx(plain, rel=1e-2)
    assert fast_sums[:2] == pytest.approx(plain_sums[:2], rel=1e-2)
    for name, grad in plain_grads.items():
        assert grad is not None
        assert fast_grads[name] is not None
        limit = 0.12 if eight else 0.03
        assert off(fast_grads[name], grad) < limit, name  # type: ignore[arg-type]


def test_sublayers_that_begin_silent_have_gradients_in_eight_bits_too() -> None:
    model, batch = make_model(), make_batch(SHORT)
    initialise(model, "zero")
    counts, grads = torch.ones(2, device="cuda"), []
    for objective in (Objective(model), FastObjective(model, eight=True)):
        model.zero_grad(set_to_none=True)
        objective(batch, counts)[0].backward()
        grads.append({name: p.grad for name, p in model.named_parameters()})
    moved = [name for name, grad in grads[0].items() if grad is not None and grad.any()]
    assert "encoder.layers.0.down.weight" in moved
    assert all(torch.isfinite(grad).all() for grad in grads[1].values() if grad is not None)
    assert all(off(grads[1][name], grads[0][name]) < 0.12 for name in moved)  # type: ignore[arg-type]


def test_the_fast_model_repeats_itself() -> None:
    model, batch = make_model(), make_batch(SHORT)
    objective, counts = FastObjective(model, eight=True), torch.ones(2, device="cuda")
    hashes = []
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        objective(batch, counts)[0].backward()
        hashes.append([p.grad.double().sum().item() for p in model.parameters() if p.grad is not None])
    assert hashes[0] == hashes[1]


def test_copies_follow_the_weights() -> None:
    model, batch = make_model(), make_batch(SHORT)
    objective, counts = FastObjective(model), torch.ones(2, device="cuda")
    before = objective(batch, counts)[0].item()
    with torch.no_grad():
        model.encoder.embeddings.token.weight.mul_(1.5)
    assert objective(batch, counts)[0].item() != before


def test_the_choice() -> None:
    model = make_model()
    assert isinstance(choose_objective(model, LoopOptions(dtype=torch.bfloat16, kernels="auto")), FastObjective)
    assert not isinstance(choose_objective(model, LoopOptions(dtype=torch.bfloat16, kernels="plain")), FastObjective)
    assert not isinstance(choose_objective(model, LoopOptions(kernels="auto")), FastObjective)
    assert why_not_fast(make_model(hidden_dropout=0.1)) == "dropout is on"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lengths", [SHORT, LONG])
def test_fast_inference_has_the_plain_one_s_vectors(
    lengths: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model().eval()
    batch = make_batch(lengths).inputs
    rows = torch.tensor([0, 3, 7], device="cuda")
    with torch.inference_mode():
        exact, exact_rows = model.encoder(batch), model.encoder(batch, rows=rows)
        model.to(dtype)
        monkeypatch.setattr("bertkit.model.fast_inference.LEAST_TOKENS", 1)
        assert takes_fast_inference(model.encoder, batch)
        assert off(model.encoder(batch), exact) < 2e-2
        assert off(model.encoder(batch, rows=rows), exact_rows) < 2e-2
        if dtype == torch.bfloat16:
            model.encoder.use_eight_bits()
            eight = model.encoder(batch)
            assert off(eight, exact) < 0.1
            assert F.cosine_similarity(eight.float(), exact, dim=-1).mean() > 0.995


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_fast_inference_on_a_device_that_is_not_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = make_model().eval().to("cuda:1"), make_batch(SHORT).inputs.to("cuda:1")
    monkeypatch.setattr("bertkit.model.fast_inference.LEAST_TOKENS", 1)
    with torch.inference_mode():
        exact = model.encoder(batch)
        model.to(torch.bfloat16)
        assert takes_fast_inference(model.encoder, batch)
        assert off(model.encoder(batch), exact) < 2e-2
        assert not takes_fast_inference(model.encoder, batch.to("cuda:0"))
