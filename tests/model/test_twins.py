"""What bench.gpu_twins times beside our kernels computes the same; without a GPU in Triton's interpreter, uncompiled."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from bertkit.model import preset
from tests.model.interpreter import DEVICE, INTERPRETED, KERNEL_MARKS, mend_interpreter, on_gpu_alone

pytest.importorskip("triton", reason="Triton comes with torch for CUDA")
pytestmark = KERNEL_MARKS
if INTERPRETED:
    mend_interpreter()
CONFIG = preset("tiny", vocab_size=70)
SCORES = ("cross-entropy", "GELU backward")  # these also write over what they are given


def tensors(made: Any) -> Iterator[Tensor]:
    if isinstance(made, Tensor):
        yield made
    elif made is not None:
        for part in made:
            yield from tensors(part)


def assert_alike(ours: Any, twin: Any) -> None:
    pairs = list(zip(tensors(ours), tensors(twin), strict=False))  # ours may have constant scales too
    assert pairs
    for one, other in pairs:
        assert one.dtype == other.dtype
        torch.testing.assert_close(one.float().flatten(), other.float().flatten(), rtol=0.07, atol=0.02)


@pytest.mark.parametrize("eight", [False, True])
def test_passes_have_twins(eight: bool) -> None:
    from bench.gpu_twins import passes

    torch.manual_seed(0)
    found = {pair.name: pair for pair in passes(CONFIG, 40, DEVICE, eight=eight, wrap=lambda function: function)}
    assert {pair.calls for pair in found.values()} >= {1, CONFIG.num_layers, 2 * CONFIG.num_layers}
    for name in found.keys() - SCORES:
        assert_alike(found[name].ours(), found[name].twin())
    losses, hits, _ = found["cross-entropy"].twin()
    assert_alike(found["cross-entropy"].ours(), (losses, hits))
    _, *rest = found["GELU backward"].twin()
    assert_alike(found["GELU backward"].ours(), rest)


def test_what_is_saved_is_told_beside_both_twins() -> None:
    from bench.gpu_twins import HEAD, Pair, line, measure

    took = {"ours": 0.1, "twin": 0.3, "plain": 0.6}
    pair, plain = (Pair("GELU", 12, partial(str, "ours"), partial(str, name)) for name in ("twin", "plain"))
    gain = measure(pair, plain, 60.0, lambda run: took[run()])
    assert line(gain) == "| GELU | 12 | 0.100 | 0.300 | 4.0 % | 0.0 | 0.600 | 10.0 % |"
    alone = line(measure(pair, None, 60.0, lambda run: took[run()]))
    assert alone == "| GELU | 12 | 0.100 | 0.300 | 4.0 % | 0.0 |  |  |"
    assert {text.count("|") for text in (*HEAD.splitlines(), alone)} == {9}


@on_gpu_alone
@pytest.mark.parametrize("length", [128, 512])
def test_attention_has_a_twin(length: int) -> None:
    from bench.gpu_twins import attention

    forward, backward = attention(CONFIG, 1024, length, DEVICE)
    if length == 128:  # in long rows the product before it adds the biases
        assert_alike(forward.ours(), forward.twin())
        for one, other in zip(tensors(backward.ours()), tensors(backward.twin()), strict=True):
            # The twin rounds before it adds up, so the keys' biases, whose gradient is nothing, have some.
            assert (one.float().flatten() - other.float().flatten()).norm() < 0.02 * other.float().norm()
    assert {forward.calls, backward.calls} == {CONFIG.num_layers}
