"""Every kernel and its gradient against float64: on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET is 1.

`make test` does the latter (test_interpreter.py). Tests of what the interpreter has not, as products by cuBLASLt and the
choice of kernels on a device, say `on_gpu_alone`; launch options and memory on chip are for test_compile.py.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.model.kernels.e4m3 import ACTIVATION, LARGEST
from bertkit.model.packed import pack
from bertkit.tasks.pretraining import IGNORED
from tests.model.interpreter import DEVICE, INTERPRETED, KERNEL_MARKS, mend_interpreter, on_gpu_alone

pytest.importorskip("triton", reason="Triton comes with torch for CUDA")
pytestmark = KERNEL_MARKS
if INTERPRETED:
    mend_interpreter()
SHORT = (128, 0, 5, 77, 128, 1, 64)
LONG = (300, 3, 0, 129, 1) if INTERPRETED else (512, 3, 0, 128, 77, 1, 300, 129)
ROWS = 37 if INTERPRETED else 1031
BF16, EIGHT = 8e-3, 5e-2  # how far results may be off: a few roundings of the type


def off(result: Tensor, exact: Tensor) -> float:
    result, exact = result.detach().double(), exact.detach().double()
    return float((result - exact).norm() / exact.norm())


def random(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, device=DEVICE) * scale


def twins(*tensors: Tensor) -> list[Tensor]:
    return [tensor.double().requires_grad_() for tensor in tensors]


def starts(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor([0, *lengths], device=DEVICE).cumsum(0, dtype=torch.int32)


def exact_attention(qkv: Tensor, lengths: tuple[int, ...]) -> Tensor:
    parts = [part.permute(1, 2, 0, 3) for part in qkv.split(list(lengths)) if len(part)]  # [3, H, S, E]
    return torch.cat([F.scaled_dot_product_attention(*part).transpose(0, 1) for part in parts])


def exact_gradient(qkv: Tensor, lengths: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """What attention gives, a gradient that comes in, and what it makes of it."""
    (exact,) = twins(qkv)
    expected = exact_attention(exact, lengths)
    grad = random(*expected.shape).bfloat16()
    expected.backward(grad.double())
    assert exact.grad is not None
    return expected, grad, exact.grad


@pytest.mark.parametrize(
    ("lengths", "heads", "width"),
    [(SHORT, 4, 64), ((1,), 1, 16), ((0, 17, 0), 2, 32), ((33, 2, 16, 0), 3, 128)],
)
def test_attention(lengths: tuple[int, ...], heads: int, width: int) -> None:
    from bertkit.model.kernels.attention import attention_backward, attention_forward

    torch.manual_seed(0)
    qkv, bias = random(sum(lengths), 3, heads, width).bfloat16(), random(3 * heads * width)
    shifted = (qkv.float().flatten(1) + bias).bfloat16().view_as(qkv)
    expected, grad, exact = exact_gradient(shifted, lengths)
    out = attention_forward(qkv, bias, starts(lengths), max(lengths))
    d_qkv, d_bias = attention_backward(grad, qkv, bias, starts(lengths), max(lengths))
    assert off(out, expected) < BF16
    assert off(d_qkv, exact) < BF16
    assert off(d_bias, exact.sum(0).flatten()) < BF16


@pytest.mark.parametrize(("lengths", "heads"), [(SHORT, 4), ((1,), 8), ((0, 128, 0, 33), 4), ((80, 2), 12)])
def test_bulk_attention(lengths: tuple[int, ...], heads: int) -> None:
    from bertkit.model.kernels.bulk_attention import bulk_attention_forward

    torch.manual_seed(0)
    qkv, bias = random(sum(lengths), 3, heads, 64).bfloat16(), random(3 * heads * 64)
    shifted = (qkv.double().flatten(1) + bias).view_as(qkv)
    out = bulk_attention_forward(qkv, bias, starts(lengths), max(lengths))
    assert off(out, exact_attention(shifted, lengths)) < BF16


@pytest.mark.parametrize(
    ("lengths", "spare", "heads", "width"),
    [(LONG, 0, 2 if INTERPRETED else 4, 64), ((257,), 0, 1, 16), ((1, 0, 130), 200, 2, 32), ((64, 129), 0, 1, 128)],
)
def test_long_attention(lengths: tuple[int, ...], spare: int, heads: int, width: int) -> None:
    from bertkit.model.kernels.long_attention import long_attention_backward, long_attention_forward

    torch.manual_seed(0)
    qkv = random(sum(lengths), 3, heads, width, scale=1.5).bfloat16()
    expected, grad, exact = exact_gradient(qkv, lengths)
    longest = max(lengths) + spare  # a capacity: no sequence has to be as long
    out, normalisers = long_attention_forward(qkv, starts(lengths), longest)
    d_qkv = long_attention_backward(grad, qkv, out, normalisers, starts(lengths), longest)
    assert off(out, expected) < BF16
    assert off(d_qkv, exact) < BF16


@pytest.mark.parametrize("shift", [6.0, -6.0])
@pytest.mark.parametrize("lengths", [(70,), (70, 130)])
def test_attention_where_all_scores_lie_far_from_zero(lengths: tuple[int, ...], shift: float) -> None:
    """Places beyond a sequence have a score of zero: what becomes of it may not be seen."""
    from bertkit.model.kernels.attention import attention_backward, attention_forward
    from bertkit.model.kernels.long_attention import long_attention_backward, long_attention_forward

    torch.manual_seed(0)
    qkv = random(sum(lengths), 3, 1, 64)
    qkv[:, 0] += 6.0
    qkv[:, 1] += shift  # scores are about 64 * 6 * 6 / 8, above or below zero
    qkv = qkv.bfloat16()
    expected, grad, exact = exact_gradient(qkv, lengths)
    if len(lengths) == 1:
        bias = torch.zeros(3 * 64, device=DEVICE)
        out = attention_forward(qkv, bias, starts(lengths), max(lengths))
        d_qkv, _ = attention_backward(grad, qkv, bias, starts(lengths), max(lengths))
    else:
        out, normalisers = long_attention_forward(qkv, starts(lengths), max(lengths))
        d_qkv = long_attention_backward(grad, qkv, out, normalisers, starts(lengths), max(lengths))
    assert off(out, expected) < BF16
    assert off(d_qkv, exact) < 3 * BF16  # of keys that are nearly one another


@pytest.mark.parametrize("width", [80, 128, 256, 512, 768, 1024])
@pytest.mark.parametrize("rows", [1, ROWS])
@pytest.mark.parametrize("whole", [True, False])
def test_layer_norm(rows: int, width: int, whole: bool) -> None:
    """With all that may come in and go out, and with nothing of it."""
    from bertkit.model.kernels.layer_norm import norm_backward, norm_forward

    torch.manual_seed(0)
    product, residual = (random(rows, width) + 3.0).bfloat16(), random(rows, width).bfloat16()
    bias, weight, shift = random(width), random(width), random(width)
    one, more = random(rows, width).bfloat16(), random(rows, width).bfloat16()
    if not whole:
        residual, more = torch.zeros_like(residual), torch.zeros_like(more)
    exact = twins(product, residual, bias, weight, shift)
    expected = F.layer_norm(exact[0] + exact[1] + exact[2], (width,), exact[3], exact[4], 1e-12)
    expected.backward(one.double() + more.double())
    added = residual if whole else None
    normed = norm_forward(product, added, bias, weight, shift, 1e-12, eight=whole)
    statistics = (bias, weight, normed.means, normed.deviations)
    grads = norm_backward(one, product, added, *statistics, d_more_TD=more if whole else None, eight=whole)
    assert off(normed.out, expected) < BF16
    for result, twin in zip(grads[:4], (exact[0], exact[3], exact[4], exact[2]), strict=True):
        assert twin.grad is not None
        assert off(result, twin.grad) < BF16
    if whole:
        assert normed.rows8 is not None
        assert grads.rows8 is not None
        assert off(normed.rows8.values.float() * normed.rows8.scales[:, None], expected) < EIGHT
        assert off(grads.rows8.values.float() * grads.rows8.scales[:, None], grads.summed) < EIGHT


@pytest.mark.parametrize("eight", [True, False])
@pytest.mark.parametrize(("rows", "width"), [(1, 80), (ROWS // 2, 512), (ROWS // 2, 3072)])
def test_gelu(rows: int, width: int, eight: bool) -> None:
    from bertkit.model.kernels.gelu import gelu_backward_, gelu_forward

    torch.manual_seed(0)
    product, bias, grad = random(rows, width, scale=2.0).bfloat16(), random(width), random(rows, width).bfloat16()
    exact, exact_bias = twins(product, bias)
    expected = F.gelu(exact + exact_bias)
    expected.backward(grad.double())
    assert exact.grad is not None
    assert exact_bias.grad is not None
    out, out8 = gelu_forward(product, bias, eight=eight)
    scales = grad.float().abs().amax(1) / 448.0
    d_product = grad.clone()
    scaling = (scales, torch.full((1,), 2.0, device=DEVICE)) if eight else ()
    d_bias, d_product8 = gelu_backward_(d_product, product, bias, *scaling)
    assert off(out, expected) < BF16
    assert off(d_product, exact.grad) < BF16
    assert off(d_bias, exact_bias.grad) < BF16
    if eight:
        assert out8 is not None
        assert d_product8 is not None
        assert off(out8.values.float() * out8.scales[:, None], expected) < EIGHT
        assert off(d_product8.values.float() * d_product8.scales[:, None], exact.grad) < EIGHT


@pytest.mark.parametrize(
    ("rows", "vocabulary", "padded"),
    [(37, 5001, 5056), (3, 30522, 30528), (1, 7, 64), (5, 4096, 4096), (2, 4090, 4160)],
)
def test_cross_entropy_writes_its_gradient(rows: int, vocabulary: int, padded: int) -> None:
    from bertkit.model.kernels.cross_entropy import cross_entropy_

    torch.manual_seed(0)
    logits, bias = random(rows, padded).bfloat16(), random(vocabulary)
    targets = torch.randint(0, vocabulary, (rows,), device=DEVICE)
    targets[0] = vocabulary - 1
    targets[1::3] = IGNORED
    exact, exact_bias = twins(logits[:, :vocabulary], bias)
    scores = exact + exact_bias
    expected = F.cross_entropy(scores, targets, ignore_index=IGNORED, reduction="none")
    (0.25 * expected.sum()).backward()
    assert exact.grad is not None
    losses, hits = cross_entropy_(logits, bias, targets, torch.tensor(0.25, device=DEVICE))
    assert off(losses, expected) < 1e-5
    assert int(hits.sum()) == int((scores.argmax(1) == targets).sum())
    assert off(logits[:, :vocabulary], exact.grad) < BF16
    assert not logits[:, vocabulary:].any()  # padding gets no gradient
    assert not logits[targets == IGNORED].any()


def test_right_answers_are_counted() -> None:
    from bertkit.model.kernels.cross_entropy import cross_entropy_

    logits, bias = torch.zeros(4, 64, device=DEVICE, dtype=torch.bfloat16), torch.zeros(50, device=DEVICE)
    logits[range(3), [0, 49, 7]] = 9.0
    logits[:, 50:] = 99.0  # padding wins nothing
    targets = torch.tensor([0, 49, 8, IGNORED], device=DEVICE)
    assert cross_entropy_(logits, bias, targets, torch.tensor(1.0, device=DEVICE))[1].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(("rows", "width"), [(1, 128), (5, 80), (ROWS, 768)])
def test_layer_norm_of_rows_of_two_tables(rows: int, width: int) -> None:
    from bertkit.model.kernels.layer_norm import norm_backward, norm_forward

    torch.manual_seed(0)
    tables = random(300, width).bfloat16(), random(80, width)
    first, second = (torch.randint(0, len(table), (rows,), device=DEVICE) for table in tables)
    first[-1], second[0] = 299, 79  # the last of a table
    ids = first, second
    none, weight, shift, grad = torch.zeros(width, device=DEVICE), random(width), random(width), random(rows, width)
    exact = twins(tables[0][first].double() + tables[1][second].double(), weight, shift)
    expected = F.layer_norm(exact[0], (width,), exact[1], exact[2], 1e-12)
    expected.backward(grad.double())
    normed = norm_forward(*tables, none, weight, shift, 1e-12, ids=ids)
    grads = norm_backward(grad, *tables, none, weight, normed.means, normed.deviations, ids=ids)
    assert off(normed.out, expected) < BF16
    for result, twin in zip(grads[:3], exact, strict=True):
        assert twin.grad is not None
        assert off(result, twin.grad) < BF16


@pytest.mark.parametrize("shape", [(2, 48, 80), (1, 16, 768), (3, 32, 128) if INTERPRETED else (3, 256, 768)])
def test_eight_bit_rows_of_a_stack_and_of_its_transpose(shape: tuple[int, int, int]) -> None:
    from bertkit.model.kernels.rows8 import narrow_rows, product8

    torch.manual_seed(0)
    stack = random(*shape, scale=0.02).bfloat16()
    stack[0, 3] = 0
    for source in (stack, stack.mT):
        rows = narrow_rows(source)
        assert off(rows.values.float() * rows.scales[:, None], source.flatten(0, 1)) < EIGHT
        assert narrow_rows(source * 2, rows).values is rows.values  # into the same room
        assert off(rows.values.float() * rows.scales[:, None], source.flatten(0, 1) * 2) < EIGHT
    left, right = narrow_rows(random(1, 100, shape[2]).bfloat16()), narrow_rows(stack)
    whole = (left.values.double() * left.scales[:, None]) @ (right.values.double() * right.scales[:, None]).t()
    assert off(product8(left, right), whole) < BF16


@pytest.mark.parametrize(("rows", "width"), [(1, 48), (ROWS, 80), (ROWS, 2304), (3, 3072)])
def test_eight_bit_rows_with_their_sum(rows: int, width: int) -> None:
    from bertkit.model.kernels.rows8 import narrow_and_sum

    torch.manual_seed(0)
    source = (random(rows, width) * random(rows, 1).exp()).bfloat16()
    source[0] = 0
    rows8, summed = narrow_and_sum(source)
    exact = source.double()
    assert off(summed, exact.sum(0)) < 1e-5 if rows > 1 else not summed.any()
    back = rows8.values.float() * rows8.scales[:, None]
    assert all(off(row, twin) < EIGHT for row, twin in zip(back[1:], exact[1:], strict=True))
    assert not back[0].any()


@on_gpu_alone
@pytest.mark.parametrize("num_rows", [1031, 1100, 7])
def test_products_of_eight_bit_rows_with_what_follows_them(num_rows: int) -> None:
    from bertkit.model.kernels.rows8 import add_product8_, narrow_rows, product8

    torch.manual_seed(0)
    rows, weight = (narrow_rows(random(1, n, 256, scale=s).bfloat16()) for n, s in ((num_rows, 1.0), (512, 0.05)))
    bias, residual = random(512), random(num_rows, 512).bfloat16()
    exact = (rows.values.double() * rows.scales[:, None]) @ (weight.values.double() * weight.scales[:, None]).t()
    assert off(product8(rows, weight), exact) < BF16
    assert off(product8(rows, weight, bias), exact + bias.double()) < BF16
    expected = exact + residual.double()
    assert add_product8_(residual, rows, weight).data_ptr() == residual.data_ptr()
    assert off(residual, expected) < BF16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [80, 320])
def test_means_of_sequences(width: int, dtype: torch.dtype) -> None:
    from bertkit.model.kernels.pooling import mean_rows

    torch.manual_seed(0)
    lengths = (5, 128, 1, 0, 33)
    hidden = random(sum(lengths), width).to(dtype)
    means = mean_rows(hidden, starts(lengths))
    exact = torch.stack([part.double().mean(0) for part in hidden.split(lengths)])
    full = torch.tensor([length > 0 for length in lengths], device=DEVICE)
    assert off(means[full], exact[full]) < 1e-5
    assert means[~full].isnan().all()


@on_gpu_alone
def test_means_of_a_part_of_longer_rows() -> None:
    from bertkit.model.pooling import pool

    torch.manual_seed(0)
    batch = pack([[1] * length for length in (5, 128, 1, 33)]).to(DEVICE)
    hidden = random(batch.num_tokens, 700).bfloat16()[:, 100:420]
    exact = torch.stack([part.double().mean(0) for part in batch.split(hidden)])
    assert off(pool(hidden, batch, "mean"), exact) < 1e-5


@on_gpu_alone
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_with_what_follows_them(dtype: torch.dtype) -> None:
    from bertkit.model.kernels.products import add_product8_, gelu_product, narrow_matrix, product

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
        summed = add_product8_(x8, small, residual.to(dtype))
        assert off(summed, plain + residual.double()) < EIGHT
    assert product(x[:0], weights).shape == (0, 512)


@pytest.fixture(params=[1, 2, 3])
def _tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    from bertkit.model.kernels import tiled_products

    for name in ("HALF", "INT8", "INT8_GELU"):
        cut = getattr(tiled_products, name)
        monkeypatch.setattr(tiled_products, name, cut._replace(parts=request.param))


@pytest.mark.usefixtures("_tiles")
@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(300, 512, 256), (1, 80, 48), (129, 272, 400)])
def test_gelu_of_products(rows: int, outputs: int, inputs: int) -> None:
    """Also where tiles reach beyond all edges."""
    from bertkit.model.kernels.tiled_products import launch

    torch.manual_seed(0)
    x, weights = random(rows, inputs).bfloat16(), random(outputs, inputs, scale=0.1).bfloat16()
    bias = random(outputs).bfloat16()
    expected = F.gelu(F.linear(x.double(), weights.double(), bias.double()))
    assert off(launch(x, weights, bias, gelu=True), expected) < BF16


@pytest.mark.usefixtures("_tiles")
@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(300, 512, 256), (1, 80, 48), (129, 272, 400)])
def test_products_of_int8(rows: int, outputs: int, inputs: int) -> None:
    from bertkit.model.kernels.rows8 import Rows8, to_int8
    from bertkit.model.kernels.tiled_products import gelu_product_int8, product_int8

    torch.manual_seed(0)
    x, weights = to_int8(random(rows, inputs) * random(rows, 1).exp()), to_int8(random(outputs, inputs, scale=0.1))
    bias = random(outputs).bfloat16()
    exact = (x.values.double() * x.scales[:, None]) @ (weights.values.double() * weights.scales[:, None]).t()
    assert off(product_int8(x, weights), exact) < BF16
    assert off(product_int8(x, weights, bias), exact + bias.double()) < BF16
    active = gelu_product_int8(x, weights, bias)
    assert active.dtype == torch.float8_e4m3fn
    assert off(active.float() / ACTIVATION, F.gelu(exact + bias.double()).clamp(max=LARGEST / ACTIVATION)) < EIGHT
    assert product_int8(Rows8(x.values[:0], x.scales[:0]), weights).shape == (0, outputs)


@pytest.mark.parametrize(("rows", "width"), [(1, 80), (ROWS, 768), (7, 1024)])
def test_layer_norm_leaves_int8_with_a_scale_a_row(rows: int, width: int) -> None:
    from bertkit.model.kernels.layer_norm import norm_forward

    torch.manual_seed(0)
    x, bias, weight, shift = random(rows, width).bfloat16(), random(width), random(width), random(width)
    shrink = random(width).exp()
    normed = norm_forward(x, None, bias, weight, shift, 1e-12, shrink=shrink)
    assert normed.rows8 is not None
    values, scales = normed.rows8
    exact = F.layer_norm(x.double() + bias.double(), (width,), weight.double(), shift.double(), 1e-12)
    assert off(normed.out, exact) < BF16
    exact *= shrink.double()
    assert values.dtype == torch.int8
    assert (values.abs().amax(1) == 127).all()
    assert ((values.double() * scales[:, None] - exact).abs() <= 0.502 * scales[:, None]).all()


@on_gpu_alone
def test_products_of_what_lies_oddly_in_memory() -> None:
    from bertkit.model.kernels.products import product

    torch.manual_seed(0)
    rows, weights = random(300, 257).bfloat16()[:, 1:], random(256, 512).bfloat16().t()
    assert off(product(rows, weights), rows.double() @ weights.double().t()) < BF16
