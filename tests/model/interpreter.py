"""Triton's interpreter, which runs kernels on a CPU, made to compute as a GPU does and to watch what a GPU does not.

Its own casts cut bf16 off, lose carries of e4m3 and, as its products do, take bits of bf16 for integers. Here numbers are
rounded to the nearest, and e4m3 stays finite. Each load and store must lie within one tensor that the kernel was given,
no place is written twice in a launch, and memory that nobody wrote to holds NaN. None of it can be taken back, so it is
for a process of its own, in which TRITON_INTERPRET is 1 from the start (test_interpreter.py).
"""

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bertkit.model.kernels.e4m3 import LARGEST

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
KERNEL_MARKS = [  # of tests that run kernels, on a GPU or here
    pytest.mark.gpu,
    pytest.mark.skipif(
        not INTERPRETED and not torch.cuda.is_available(), reason="needs a CUDA device: `make test-gpu`"
    ),
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),  # the first product of a backward thread
]
on_gpu_alone = pytest.mark.skipif(INTERPRETED, reason="the interpreter has no such thing")
NARROW: dict[str, Any] = {}  # numpy's own of the types that the interpreter keeps as bits


def mend_interpreter() -> None:
    """Let the kernels of this process run as said above."""
    import ml_dtypes  # here, since tests on a GPU do without
    import triton.language as tl
    from triton.runtime import interpreter

    NARROW.update(bf16=ml_dtypes.bfloat16, fp8e4nv=ml_dtypes.float8_e4m3fn)
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    if builder.create_dot is _multiply:
        return
    builder.cast_impl = builder.create_fp_to_fp = _cast
    builder.create_dot = _multiply
    builder.create_inline_asm = _compute_tanh
    watch = _Watch()
    builder.create_masked_load = watch.loading(builder.create_masked_load)
    builder.create_masked_store = watch.storing(builder.create_masked_store)
    executor._init_args_hst = watch.beginning(executor._init_args_hst)
    executor._restore_args_dev = watch.ending(executor._restore_args_dev)
    # Every call of a function would make the language an interpreted one again, which takes longer than most kernels.
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda function: interpreter._LangPatchScope()
    np.seterr(all="ignore")  # what is not a number is masked later, and no GPU would tell
    torch.use_deterministic_algorithms(True)  # also fills with NaN what is only allocated


def _numbers(handle: Any) -> Any:
    """What a handle's bits mean, in numpy's types."""
    kind = NARROW.get(handle.dtype.scalar.name)
    return handle.data if kind is None else handle.data.view(kind)


def _cast(builder: Any, source: Any, target: Any, *_: Any) -> Any:
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    numbers, stored = _numbers(source), _get_np_dtype(target)
    kind = NARROW.get(target.scalar.name)
    if kind is None:
        return TensorHandle(numbers.astype(stored), target.scalar)
    if target.scalar.name == "fp8e4nv":
        numbers = np.clip(numbers.astype(np.float32), -LARGEST, LARGEST)
    return TensorHandle(numbers.astype(kind).view(stored), target.scalar)


def _multiply(builder: Any, left: Any, right: Any, added: Any, *_: Any) -> Any:
    from triton.runtime.interpreter import TensorHandle

    wide = [_numbers(part).astype(added.data.dtype) for part in (left, right)]
    return TensorHandle(np.matmul(*wide) + added.data, added.dtype.scalar)


def _compute_tanh(builder: Any, assembler: str, constraints: Any, values: list[Any], *_: Any) -> Any:
    """The only instruction that our kernels write themselves."""
    from triton.runtime.interpreter import TensorHandle

    assert assembler == "tanh.approx.f32 $0, $1;"
    (value,) = values
    made = TensorHandle(np.tanh(value.data), value.dtype.scalar)
    return SimpleNamespace(get_result=lambda index: made)


class _Watch:
    """Where the tensors of a launch lie, and what it has written."""

    def __init__(self) -> None:
        self.extents: list[tuple[int, int]] = []
        self.written: list[Any] = []

    def beginning(self, bring: Any) -> Any:
        def begin(executor: Any, arguments: Any, named: Any) -> Any:
            brought = bring(executor, arguments, named)
            tensors = (getattr(one, "base", one) for one in brought[0])  # also of what is copied by tiles
            self.extents = [_extent(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)]
            self.written = []
            return brought

        return begin

    def ending(self, take_back: Any) -> Any:
        def end(executor: Any, *arguments: Any) -> Any:
            places = np.concatenate(self.written) if self.written else np.empty(0)
            assert np.unique(places).size == places.size, f"{executor.fn.__name__} writes twice to one place"
            return take_back(executor, *arguments)

        return end

    def loading(self, load: Any) -> Any:
        def watched(builder: Any, pointers: Any, mask: Any, *others: Any, **named: Any) -> Any:
            self._touched(pointers, mask)
            return load(builder, pointers, mask, *others, **named)

        return watched

    def storing(self, store: Any) -> Any:
        def watched(builder: Any, pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
            self.written.append(self._touched(pointers, mask))
            return store(builder, pointers, value, mask, *others)

        return watched

    def _touched(self, pointers: Any, mask: Any) -> Any:
        """The places that the mask lets through, all of them within one tensor."""
        places = pointers.data[np.broadcast_to(mask.data, pointers.data.shape)]
        if places.size:
            first, last = int(places.min()), int(places.max())
            assert any(begin <= first and last < end for begin, end in self.extents), "outside of every tensor"
        return places


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The address of its first number, and where its last one ends."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + (reach + 1) * tensor.itemsize if tensor.numel() else begin
