"""The GPU kernels through Triton's compiler and assembler, which need no GPU: with their launch options they are accepted,
and fit into the memory on chip. What they compute is for test_interpreter.py, how fast they are for a GPU.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.model.interpreter import INTERPRETED

triton = pytest.importorskip("triton", reason="Triton is not installed")
pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
ON_CHIP = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10}  # bytes that one program may have, by compute capability


def compile_launch(function: Any, arguments: tuple[Any, ...], options: dict[str, Any], capability: int) -> Any:
    """What a launch with these arguments would run, as Triton's launcher would ask for it."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    aligned: dict[tuple[int], Any] = {}
    for index, (parameter, value) in enumerate(zip(function.params, arguments, strict=True)):
        is_special = not parameter.do_not_specialize
        if parameter.is_constexpr or value is None or (is_special and isinstance(value, int) and value == 1):
            signature[parameter.name], constants[index,] = "constexpr", value
            continue
        signature[parameter.name] = triton.runtime.jit.mangle_type(value)
        number = value.data_ptr() if isinstance(value, Tensor) else value
        if is_special and isinstance(number, int) and number % 16 == 0:
            aligned[index,] = [["tt.divisibility", 16]]
    source = triton.compiler.ASTSource(function, signature, constants, aligned)
    target = triton.backends.compiler.GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options=options)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], list[Any]]:
    """From the call on, kernels are compiled for this capability in place of being run, and put on the list."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    def begin(capability: int) -> list[Any]:
        made: list[Any] = []

        def run(function: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
            made.append(compile_launch(function, arguments, options, capability))
            assert made[-1].metadata.shared <= ON_CHIP[capability], made[-1].metadata.name

        monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", run)
        return made

    return begin


def half(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


STARTS = torch.tensor([0, 128], dtype=torch.int32)


def test_attention_of_short_sequences(compiled: Callable[[int], list[Any]]) -> None:
    from bertkit.model.kernels.attention import LONGEST, attention_backward, attention_forward

    made, qkv, bias = compiled(90), half(128, 3, 12, 64), torch.zeros(3 * 12 * 64)
    attention_forward(qkv, bias, STARTS, LONGEST)
    attention_backward(half(128, 12, 64), qkv, bias, STARTS, LONGEST)
    assert len(made) == 2


def test_what_is_for_hopper_alone(compiled: Callable[[int], list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    from bertkit.model.kernels import tiled_products
    from bertkit.model.kernels.bulk_attention import bulk_attention_forward

    made, bias = compiled(90), torch.zeros(3072, dtype=torch.bfloat16)
    bulk_attention_forward(half(128, 3, 12, 64), torch.zeros(3 * 12 * 64), STARTS, 128)
    for parts in (1, 2, 3):
        monkeypatch.setattr(tiled_products, "HALF", tiled_products.HALF._replace(parts=parts))
        tiled_products.launch(half(512, 768), half(3072, 768), bias, gelu=True)
    assert len(made) == 4


@pytest.mark.parametrize("capability", [89, 90])
def test_sentence_vectors_in_eight_bits(compiled: Callable[[int], list[Any]], capability: int) -> None:
    from bertkit.model.kernels.layer_norm import norm_forward
    from bertkit.model.kernels.rows8 import to_int8
    from bertkit.model.kernels.tiled_products import gelu_product_int8, product_int8

    made, row, bias = compiled(capability), torch.zeros(768), torch.zeros(3072, dtype=torch.bfloat16)
    rows8 = norm_forward(half(512, 768), half(512, 768), row, row, row, 1e-12, shrink=row).rows8
    assert rows8 is not None
    product_int8(rows8, to_int8(half(2304, 768)))
    product_int8(rows8, to_int8(half(3072, 768)), bias)
    gelu_product_int8(rows8, to_int8(half(3072, 768)), bias)
    assert len(made) == 4


@pytest.mark.parametrize(("capability", "width"), [(90, 64), (89, 64), (89, 128), (80, 128)])
def test_attention_of_long_sequences(compiled: Callable[[int], list[Any]], capability: int, width: int) -> None:
    from bertkit.model.kernels.long_attention import long_attention_backward, long_attention_forward

    made, qkv, mixed = compiled(capability), half(128, 3, 12, width), half(128, 12, width)
    _, normalisers = long_attention_forward(qkv, STARTS, 512)
    long_attention_backward(mixed, qkv, mixed, normalisers, STARTS, 512)
    assert len(made) == 3


@pytest.mark.parametrize(("capability", "eight"), [(80, False), (90, True)])
def test_what_lies_between_the_products(compiled: Callable[[int], list[Any]], capability: int, eight: bool) -> None:
    from bertkit.model.kernels.cross_entropy import cross_entropy_
    from bertkit.model.kernels.gelu import gelu_backward_, gelu_forward
    from bertkit.model.kernels.layer_norm import norm_backward, norm_forward
    from bertkit.model.kernels.pooling import mean_rows

    made, rows, row, ids = compiled(capability), half(128, 768), torch.zeros(768), torch.zeros(128, dtype=torch.long)
    tables = half(1000, 768), torch.zeros(1024, 768), row
    normed = norm_forward(*tables, row, row, 1e-12, ids=(ids, ids), eight=eight)
    norm_backward(rows, *tables, row, normed.means, normed.deviations, ids=(ids, ids))
    normed = norm_forward(rows, rows, row, row, row, 1e-12, eight=eight)
    norm_backward(rows, rows, rows, row, row, normed.means, normed.deviations, d_more_TD=rows, eight=eight)
    gelu_forward(rows, row, eight=eight)
    gelu_backward_(rows, rows, row, *((normed.means, torch.ones(1)) if eight else ()))
    cross_entropy_(half(4, 30528), torch.zeros(30522), torch.zeros(4, dtype=torch.long), torch.ones(()))
    mean_rows(rows, STARTS)
    assert len(made) == 8


def test_rows_in_eight_bits(compiled: Callable[[int], list[Any]]) -> None:
    from bertkit.model.kernels.rows8 import narrow_and_sum, narrow_rows

    made, stack = compiled(90), half(2, 64, 768)
    narrow_rows(stack)
    narrow_rows(stack.mT)
    narrow_and_sum(half(128, 3072))
    assert len(made) == 3
