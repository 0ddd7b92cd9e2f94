"""What bench.gpu_twins times beside our kernels computes the same; without a GPU in Triton's interpreter, uncompiled."""

from collections.abc import Iterator
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


@on_gpu_alone
@pytest.mark.parametrize("length", [128, 512])
def test_attention_has_a_twin(length: int) -> None:
    from bench.gpu_twins import attention

    forward, backward = attention(CONFIG, 1024, length, DEVICE)
    if length == 128:  # in long rows the product before it adds the biases
        assert_alike(forward.ours(), forward.twin())
        assert_alike(backward.ours(), backward.twin())
    assert {forward.calls, backward.calls} == {CONFIG.num_layers}
