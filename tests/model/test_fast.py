"""The fast model against the plain one, on a CUDA device or in Triton's interpreter (test_kernels.py says which)."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.model import preset
from bertkit.model.bert import BertModel
from bertkit.model.fast_inference import takes_fast_inference
from bertkit.model.kernels.e4m3 import ACTIVATION
from bertkit.model.kernels.products import Matrix8
from bertkit.model.packed import PackedBatch, pack
from bertkit.tasks.pretraining import IGNORED, PretrainingBatch
from bertkit.training.fast_objective import FastObjective, choose_objective, why_not_fast
from bertkit.training.initialisation import initialise
from bertkit.training.objective import Objective
from bertkit.training.stepping import LoopOptions
from tests.model.interpreter import DEVICE, INTERPRETED, KERNEL_MARKS, on_gpu_alone
from tests.model.test_kernels import off

pytest.importorskip("triton", reason="Triton comes with torch for CUDA")
pytestmark = KERNEL_MARKS
SIZES = {"hidden_size": 48, "num_heads": 3, "intermediate_size": 80, "num_layers": 2} if INTERPRETED else {}
WIDE = {"hidden_size": 256, "num_heads": 4}  # as bulk attention wants heads
SHORT = (70, 0, 5, 1) if INTERPRETED else (128, 0, 5, 77, 128, 1, 64)
LONG = (131, 0, 4) if INTERPRETED else (512, 3, 0, 128, 77, 1, 300, 129)


def make_model(*, hidden_dropout: float = 0.0, **sizes: int) -> BertModel:
    torch.manual_seed(1)
    dropout = {"hidden_dropout": hidden_dropout, "attention_dropout": 0.0}
    return BertModel(preset("small", vocab_size=1001, **{**SIZES, **sizes}, **dropout)).to(DEVICE)


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
    return PretrainingBatch(packed, masked, targets, labels).to(DEVICE)


@pytest.mark.parametrize("reach", [0, 40])
def test_embeddings_that_tokens_share_get_the_gradients_of_all(reach: int) -> None:
    from bertkit.model.fast import FastEmbeddings

    torch.manual_seed(0)
    lengths, sizes = (20, 0, 1, 13), (64, 2, 50)
    batch = pack(*([[n % ids for n in range(length)] for length in lengths] for ids in (5, 2)))
    batch = replace(batch, position_ids=batch.position_ids + (reach and reach - 20), reach=reach).to(DEVICE)
    exact = [torch.randn(size, 80, device=DEVICE).bfloat16().double() for size in sizes]
    exact += [torch.randn(80, device=DEVICE).double() for _ in range(2)]
    fast = [tensor.float().requires_grad_() for tensor in exact]
    grad = torch.randn(batch.num_tokens, 80, device=DEVICE).bfloat16()
    out, _ = FastEmbeddings.apply(batch, fast[0].detach().bfloat16(), 1e-12, False, *fast)  # type: ignore[no-untyped-call]
    out.backward(grad)
    token, segment, position, weight, bias = (tensor.requires_grad_() for tensor in exact)
    summed = token[batch.token_ids] + segment[batch.segment_ids] + position[batch.position_ids]
    F.layer_norm(summed, (80,), weight, bias, 1e-12).backward(grad.double())
    for result, twin in zip(fast, exact, strict=True):
        assert result.grad is not None
        assert twin.grad is not None
        assert off(result.grad, twin.grad) < 1e-2
        assert not result.grad[(twin.grad == 0).all(-1)].any()  # of rows that nobody asked for


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
    counts = torch.tensor([float(used.sum()), float((batch.next_labels != IGNORED).sum())], device=DEVICE)
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
    counts, grads = torch.ones(2, device=DEVICE), []
    for objective in (Objective(model), FastObjective(model, eight=True)):
        model.zero_grad(set_to_none=True)
        objective(batch, counts)[0].backward()
        grads.append({name: p.grad for name, p in model.named_parameters()})
    moved = [name for name, grad in grads[0].items() if grad is not None and grad.any()]
    assert "encoder.layers.0.down.weight" in moved
    assert all(torch.isfinite(grad).all() for grad in grads[1].values() if grad is not None)
    assert all(off(grads[1][name], grads[0][name]) < 0.12 for name in moved)  # type: ignore[arg-type]


@on_gpu_alone
def test_the_fast_model_repeats_itself() -> None:
    model, batch = make_model(), make_batch(SHORT)
    objective, counts = FastObjective(model, eight=True), torch.ones(2, device=DEVICE)
    hashes = []
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        objective(batch, counts)[0].backward()
        hashes.append([p.grad.double().sum().item() for p in model.parameters() if p.grad is not None])
    assert hashes[0] == hashes[1]


def test_copies_follow_the_weights() -> None:
    model, batch = make_model(), make_batch(SHORT)
    objective, counts = FastObjective(model), torch.ones(2, device=DEVICE)
    before = objective(batch, counts)[0].item()
    with torch.no_grad():
        model.encoder.embeddings.token.weight.mul_(1.5)
    assert objective(batch, counts)[0].item() != before


@on_gpu_alone
def test_the_choice() -> None:
    model = make_model()
    assert isinstance(choose_objective(model, LoopOptions(dtype=torch.bfloat16, kernels="auto")), FastObjective)
    assert not isinstance(choose_objective(model, LoopOptions(dtype=torch.bfloat16, kernels="plain")), FastObjective)
    assert not isinstance(choose_objective(model, LoopOptions(kernels="auto")), FastObjective)
    assert why_not_fast(make_model(hidden_dropout=0.1)) == "dropout is on"


@pytest.fixture(params=["in bulk", "as before Hopper"])
def fast_inference(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernels for batches as small as these; in the interpreter, with products by torch in place of cuBLASLt's."""
    from bertkit.model.kernels.bulk import copies_in_bulk

    in_bulk = request.param == "in bulk" and (INTERPRETED or copies_in_bulk(torch.device(DEVICE)))
    for module in ("bulk_attention", "tiled_products"):
        monkeypatch.setattr(f"bertkit.model.kernels.{module}.copies_in_bulk", lambda device: in_bulk)
    monkeypatch.setattr("bertkit.model.kernels.bulk_attention.LEAST_PROGRAMS", 1)
    if not INTERPRETED:
        monkeypatch.setattr("bertkit.model.fast_inference.LEAST_TOKENS", 1)
        return
    monkeypatch.setattr("bertkit.model.encoder.takes_fast_inference", lambda encoder, batch: not encoder.training)
    for function in (product, gelu_product, add_product8_):
        monkeypatch.setattr(f"bertkit.model.kernels.products.{function.__name__}", function)


def product(rows: Tensor, weights: Tensor) -> Tensor:
    return rows @ weights.t()


def gelu_product(rows: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(F.linear(rows, weights, bias), approximate="tanh")


def add_product8_(rows8: Tensor, weights: Matrix8, residual: Tensor) -> Tensor:
    return residual.add_(product(rows8.float() / ACTIVATION, weights.values.float() * weights.scale))


@pytest.mark.usefixtures("fast_inference")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lengths", [SHORT, LONG])
def test_fast_inference_has_the_plain_one_s_vectors(lengths: tuple[int, ...], dtype: torch.dtype) -> None:
    model = make_model(**WIDE).eval()
    batch = make_batch(lengths).inputs
    rows = torch.tensor([0, 3, 7], device=DEVICE)
    with torch.inference_mode():
        exact, exact_rows = (model.encoder(batch, rows=some, backend="plain") for some in (None, rows))
        model.to(dtype)
        assert INTERPRETED or takes_fast_inference(model.encoder, batch)
        assert off(model.encoder(batch), exact) < 2e-2
        assert off(model.encoder(batch, rows=rows), exact_rows) < 2e-2
        if dtype == torch.bfloat16:
            width = model.config.hidden_size
            for factors in ({}, {f"0.{kind}": torch.rand(width) + 0.5 for kind in ("qkv", "up")}):
                model.encoder.use_eight_bits(factors)
                eight = model.encoder(batch)
                assert off(eight, exact) < 0.1
                assert F.cosine_similarity(eight.float(), exact, dim=-1).mean() > 0.995


@pytest.mark.usefixtures("fast_inference")
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_fast_inference_on_a_device_that_is_not_the_current_one() -> None:
    model, batch = make_model().eval().to("cuda:1"), make_batch(SHORT).inputs.to("cuda:1")
    with torch.inference_mode():
        exact = model.encoder(batch)
        model.to(torch.bfloat16)
        assert takes_fast_inference(model.encoder, batch)
        assert off(model.encoder(batch), exact) < 2e-2
        assert not takes_fast_inference(model.encoder, batch.to("cuda:0"))
