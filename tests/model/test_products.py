"""Calls to cuBLASLt without it: a library that only writes down what it is asked, and what our side makes of its answers."""

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bertkit.model.kernels import products
from bertkit.model.kernels.products import add_product8_, add_scaled_product8_, gelu_product, narrow_matrix, product

NOT_SUPPORTED = 15


class Library:
    """Answers every call with success, unless a status is set for its name."""

    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.states = [0, NOT_SUPPORTED, 0]  # of the algorithms that it offers

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name, arguments))
            if name.endswith("Create"):
                arguments[0]._obj.value = len(self.calls)
            elif name == "cublasLtMatmulAlgoGetHeuristic":
                *_, found, num = arguments
                num._obj.value = len(self.states)
                for index, state in enumerate(self.states):
                    found[index].algorithm[0], found[index].state, found[index].workspace = 100 + index, state, 64
            elif name == "cublasLtMatmulAlgoCheck":
                arguments[-1]._obj.workspace = 128
            return self.statuses.get(name, 0)

        return call

    def asked(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.calls if called == name]

    def last_algorithm(self) -> int:
        return int(self.asked("cublasLtMatmul")[-1][12]._obj.algorithm[0])


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    fake = Library()
    products._plan.cache_clear()
    products._on.cache_clear()
    monkeypatch.setattr(products, "_library", lambda: fake)
    monkeypatch.setattr("torch.cuda.current_stream", lambda device: SimpleNamespace(cuda_stream=7))
    monkeypatch.setattr("torch.cuda.device", lambda device: torch.no_grad())
    monkeypatch.setattr(products, "_milliseconds", lambda run: -float(run.args[0].algorithm[0]))  # the last is fastest
    yield fake
    products._plan.cache_clear()
    products._on.cache_clear()


def half(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, dtype=torch.bfloat16)


def test_the_structure_is_as_large_as_the_library_s() -> None:
    assert ctypes.sizeof(products._Algorithm) == 96  # 8 numbers of 8 bytes, the workspace, state and waves, 16 reserved
    assert products._Algorithm.workspace.offset == 64


def test_numbers_of_rows_of_one_power_of_two_share_the_fastest_algorithm(library: Library) -> None:
    weights = half(32, 16)
    product(half(9, 16), weights)
    assert library.last_algorithm() == 102  # 101 answered with a state of its own
    product(half(15, 16), weights)
    assert len(library.asked("cublasLtMatmulAlgoGetHeuristic")) == 1
    assert library.last_algorithm() == 102
    assert library.asked("cublasLtMatmul")[-1][14].value == 128  # bytes that it needs for this number of rows
    product(half(16, 16), weights)
    assert len(library.asked("cublasLtMatmulAlgoGetHeuristic")) == 2


def test_an_algorithm_that_is_not_for_this_number_of_rows_is_not_used(library: Library) -> None:
    weights = half(32, 16)
    product(half(9, 16), weights)
    library.statuses["cublasLtMatmulAlgoCheck"] = NOT_SUPPORTED
    product(half(10, 16), weights)
    assert library.last_algorithm() == 100
    library.states = []  # nor any other: no product of an earlier number of rows may be taken for it, now or next time
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^cuBLASLt does not support this product$"):
            product(half(11, 16), weights)


def test_what_lies_otherwise_in_memory_is_copied_first(library: Library) -> None:
    rows, weights = half(9, 17)[:, 1:], half(16, 32).t()
    assert product(rows, weights).shape == (9, 32)
    _, _, _, a, _, b, *_ = library.asked("cublasLtMatmul")[-1]
    assert a.value not in (None, weights.data_ptr())
    assert b.value not in (None, rows.data_ptr())
    odd = torch.ones(9 * 16 + 1, dtype=torch.bfloat16)[1:].view(9, 16)  # contiguous, at an odd address
    assert products._laid_out(odd).data_ptr() != odd.data_ptr()


def test_no_rows_ask_nothing(library: Library) -> None:
    assert gelu_product(half(0, 16), half(32, 16), half(32)).shape == (0, 32)
    assert not library.asked("cublasLtMatmul")


def test_a_residual_is_written_over_and_the_trials_are_not_made_on_it(library: Library) -> None:
    residual, small = half(9, 32), narrow_matrix(half(32, 16))
    rows8 = torch.zeros(9, 16).to(torch.float8_e4m3fn)
    assert add_product8_(rows8, small, residual).data_ptr() == residual.data_ptr()
    (asked,) = library.asked("cublasLtMatmul")  # trials are made by `_milliseconds` alone
    assert asked[8].value == asked[10].value == residual.data_ptr()
    assert asked[7]._obj.value == 1.0


def test_rows_with_a_scale_each_say_so_and_where_their_scales_lie(library: Library) -> None:
    rows8, weights8 = (torch.zeros(n, 16).to(torch.float8_e4m3fn) for n in (9, 32))
    scales, weight_scales, residual = torch.ones(9), torch.ones(32), half(9, 32)
    add_product8_(rows8, narrow_matrix(half(32, 16)), residual)
    add_scaled_product8_(rows8, scales, weights8, weight_scales, residual)
    # Another kind of product, with algorithms of its own.
    assert len(library.asked("cublasLtMatmulAlgoGetHeuristic")) == 2
    told = [(a.value, value._obj.value) for _, a, value, _ in library.asked("cublasLtMatmulDescSetAttribute")]
    assert [(a, value) for a, value in told if a in (31, 32)] == [(31, 3), (32, 3)]
    last = dict(told)
    assert (last[17], last[18]) == (weight_scales.data_ptr(), scales.data_ptr())


def test_runs_that_must_repeat_themselves_do_not_ask_the_clock(library: Library) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        product(half(9, 16), half(32, 16))
    finally:
        torch.use_deterministic_algorithms(False)
    assert library.last_algorithm() == 100


@pytest.mark.parametrize(
    ("device", "capability", "version", "expected"),
    [("cuda", 9, 130100, True), ("cuda", 9, 120800, False), ("cuda", 10, 130100, False), ("cpu", 9, 130100, False)],
)
def test_where_rows_may_have_scales(
    library: Library, monkeypatch: pytest.MonkeyPatch, device: str, capability: int, version: int, expected: bool
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (capability, 0))
    library.statuses["cublasLtGetVersion"] = version
    products.has_row_scales.cache_clear()
    assert products.has_row_scales(torch.device(device)) is expected
    products.has_row_scales.cache_clear()


def test_a_matrix_in_eight_bits_is_finite_and_near() -> None:
    torch.manual_seed(0)
    for scale in (1e-30, 1e-3, 1.0, 3e4):
        weights = torch.randn(64, 48) * scale
        small = narrow_matrix(weights)
        back = small.values.float() * small.scale
        assert torch.isfinite(back).all()
        if scale > 1e-20:
            assert (back - weights).norm() / weights.norm() < 0.05


@pytest.mark.parametrize("path", ["/usr/lib/libcublasLt.so.12", "/home/a b/libcublasLt.so.13.1"])
def test_where_the_library_lies(path: str) -> None:
    lines = ["7f0-7f1 r-xp 00000000 08:01 11   /usr/lib/libc.so.6", f"7f2-7f3 r-xp 00000000 08:01 12        {path}"]
    assert products._mapped(lines) == path
    assert products._mapped(lines[:1]) is None
