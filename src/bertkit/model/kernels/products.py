"""Products together with what follows them, by cuBLASLt itself: torch reaches few of its epilogues, and takes the first
of its algorithms where another is often 5 to 15 % faster.

Out = rows @ weights.T, then GELU (in its tanh form) of that and a bias, or a residual added before anything is rounded;
either saves a pass over memory. Rows and weights are in half precision or, where a residual is added, in eight bits: with a
scale a row (rows8.py), or rows at ACTIVATION times their worth and weights with one scale for the whole matrix (e4m3 is a
floating type, so small rows keep their precision).
Which algorithm is used is measured at the first product of a shape; numbers of rows of one power of two share it.
Dimensions: T tokens, K inputs, N outputs.
"""

import ctypes
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_int8, c_int32, c_int64, c_size_t, c_uint64, c_void_p, sizeof
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from bertkit.model.kernels.e4m3 import ACTIVATION, LARGEST

# The library's own numbers for types, attributes and epilogues (cublasLt.h, the same since CUDA 12).
TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14, torch.float8_e4m3fn: 28}
COMPUTE_FLOAT32, FLOAT32 = 68, 0
TRANSPOSE_A, EPILOGUE, BIAS, SCALE_A, SCALE_B, FAST_SUMS, BIAS_TYPE = 3, 7, 8, 17, 18, 25, 26
KIND_OF_SCALE_A, KIND_OF_SCALE_B = 31, 32
ONE_A_ROW = 3  # scale, in place of one for all
ROW_SCALES_FROM = 120900  # the library's version
PLAIN, GELU_OF_BIAS = 1, 36
COLUMNS, WORKSPACE_SIZE, NOT_SUPPORTED = 3, 1, 15
WORKSPACE = 32 << 20
ALIGNED = 256  # bytes to which every algorithm that is offered may take addresses to be aligned
CANDIDATES, TRIES, GAIN = 8, 20, 0.98  # another algorithm than the first must be this much faster

Follow = Literal["nothing", "gelu", "sum"]


class Matrix8(NamedTuple):
    """values * scale is what was meant."""

    values: Tensor  # [N, K] e4m3
    scale: Tensor  # [1] float32


def narrow_matrix(weights_NK: Tensor) -> Matrix8:
    """A matrix in eight bits with one scale."""
    scale = (weights_NK.float().abs().amax().clamp(min=1e-20) / LARGEST).reshape(1)
    return Matrix8((weights_NK.float() / scale).to(torch.float8_e4m3fn), scale)


def product(rows_TK: Tensor, weights_NK: Tensor) -> Tensor:
    """rows @ weights.T."""
    return _multiply(rows_TK, weights_NK, "nothing")


def gelu_product(rows_TK: Tensor, weights_NK: Tensor, bias: Tensor) -> Tensor:
    """gelu(rows @ weights.T + bias)."""
    return _multiply(rows_TK, weights_NK, "gelu", bias=bias)


def add_product8_(rows8_TK: Tensor, weights: Matrix8, residual_TN: Tensor) -> Tensor:
    """The bf16 residual, row after row in memory, plus rows @ weights.T, written over it."""
    return _multiply(rows8_TK, weights.values, "sum", scale=weights.scale, residual=residual_TN)


def add_scaled_product8_(
    rows8_TK: Tensor, scales_T: Tensor, weights8_NK: Tensor, scales_N: Tensor, residual_TN: Tensor
) -> Tensor:
    """The same with a scale for each row of both."""
    return _multiply(rows8_TK, weights8_NK, "sum", scale=scales_N, row_scales=scales_T, residual=residual_TN)


def is_there() -> bool:
    """Whether torch has brought the library along."""
    return _library() is not None


@cache
def has_row_scales(device: torch.device) -> bool:
    """Whether the library multiplies rows with a scale each: from its version 12.9 on, and on Hopper alone."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] != 9:
        return False
    library = _library()
    return library is not None and library.cublasLtGetVersion() >= ROW_SCALES_FROM


def _multiply(
    rows: Tensor,
    weights: Tensor,
    follow: Follow,
    *,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    row_scales: Tensor | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    rows, weights = _laid_out(rows), _laid_out(weights)
    kind = _Kind(weights.shape[1], weights.shape[0], rows.dtype, follow, row_scales is not None)
    num_rows, out = rows.shape[0], residual
    if out is None:
        out = torch.empty(num_rows, kind.num_outputs, dtype=kind.out, device=rows.device)
    if not num_rows:
        return out
    with _lock:
        plan = _plan(kind, num_rows.bit_length(), rows.device)
        plan.set_places(num_rows, {BIAS: bias, SCALE_A: scale, SCALE_B: row_scales})
        if plan.fastest is None:
            plan.fastest = plan.chosen = _find_fastest(plan, rows, weights, torch.zeros_like(out))
        return plan.run(plan.chosen, rows, weights, out)


class _Kind(NamedTuple):
    num_inputs: int
    num_outputs: int
    dtype: torch.dtype
    follow: Follow
    by_row: bool

    @property
    def out(self) -> torch.dtype:
        """The type of what comes out, and of what may be added, which the library wants to know even where nothing is."""
        return torch.bfloat16 if self.dtype.itemsize == 1 else self.dtype


class _Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


class _Plan:
    """Products of one kind, in the library's column order: its A is the weights, its B the rows."""

    def __init__(self, kind: _Kind, device: torch.device) -> None:
        self.library, self.handle = _on(device)
        self.fastest: _Algorithm | None = None  # of its first number of rows
        self.chosen: _Algorithm | None = None  # of this number of rows
        self.num_rows = 0
        self.adds = kind.follow == "sum"
        self.constant = torch.full((1,), 1 / ACTIVATION, device=device)  # of eight-bit rows
        place = c_void_p(self.constant.data_ptr())  # also for what `set_places` will set
        self.description = self._create("MatmulDesc", c_int(COMPUTE_FLOAT32), c_int(FLOAT32))
        self._set(TRANSPOSE_A, c_int32(1))
        self._set(EPILOGUE, c_int32(GELU_OF_BIAS if kind.follow == "gelu" else PLAIN))
        if kind.follow == "gelu":
            self._set(BIAS_TYPE, c_int32(TYPES[kind.out]))
            self._set(BIAS, place)
        if kind.dtype.itemsize == 1:
            self._set(FAST_SUMS, c_int8(1))
            self._set(SCALE_A, place)
            self._set(SCALE_B, place)
        if kind.by_row:
            self._set(KIND_OF_SCALE_A, c_int32(ONE_A_ROW))
            self._set(KIND_OF_SCALE_B, c_int32(ONE_A_ROW))
        wide, high = kind.num_outputs, kind.num_inputs
        shapes = ((kind.dtype, high, wide), (kind.dtype, high, 1), (kind.out, wide, 1), (kind.out, wide, 1))
        self.layouts = [
            self._create("MatrixLayout", c_int(TYPES[dtype]), c_uint64(height), c_uint64(width), c_int64(height))
            for dtype, height, width in shapes
        ]

    def set_places(self, num_rows: int, own: dict[int, Tensor | None]) -> None:
        """Tell the library what the next product has of its own, by attribute."""
        for attribute, tensor in own.items():
            if tensor is not None:
                self._set(attribute, c_void_p(tensor.data_ptr()))
        if num_rows == self.num_rows:
            return
        self.num_rows, self.chosen, columns = 0, None, c_uint64(num_rows)  # until all that follows has gone well
        for layout in self.layouts[1:]:
            set_attribute = self.library.cublasLtMatrixLayoutSetAttribute
            _check(set_attribute(layout, c_int(COLUMNS), byref(columns), c_size_t(sizeof(columns))))
        if self.fastest is not None:
            self.chosen = self._refit(self.fastest) or self.candidates()[0]
        self.num_rows = num_rows

    def candidates(self) -> list[_Algorithm]:
        """What the library would use, the likeliest first."""
        preference, most = self._create("MatmulPreference"), c_size_t(WORKSPACE)
        set_attribute = self.library.cublasLtMatmulPreferenceSetAttribute
        _check(set_attribute(preference, c_int(WORKSPACE_SIZE), byref(most), c_size_t(sizeof(most))))
        found, num = (_Algorithm * CANDIDATES)(), c_int()
        choose = self.library.cublasLtMatmulAlgoGetHeuristic
        _check(choose(self.handle, self.description, *self.layouts, preference, CANDIDATES, found, byref(num)))
        _check(self.library.cublasLtMatmulPreferenceDestroy(preference))
        usable = [one for one in list(found)[: num.value] if one.state == 0]
        _check(0 if usable else NOT_SUPPORTED)
        return usable

    def _refit(self, known: _Algorithm) -> _Algorithm | None:
        """The same algorithm with the memory that it needs for this number of rows; None where it is not for that many."""
        fitted = _Algorithm.from_buffer_copy(known)
        place = byref(known, _Algorithm.algorithm.offset)
        check = self.library.cublasLtMatmulAlgoCheck
        status: int = check(self.handle, self.description, *self.layouts, place, byref(fitted))
        return fitted if status == 0 and fitted.workspace <= WORKSPACE else None

    def run(self, algorithm: _Algorithm | None, rows: Tensor, weights: Tensor, out: Tensor) -> Tensor:
        assert algorithm is not None
        workspace = torch.empty(algorithm.workspace, dtype=torch.uint8, device=out.device)
        left, right, added, made = self.layouts
        _check(
            self.library.cublasLtMatmul(
                self.handle,
                self.description,
                byref(c_float(1.0)),
                c_void_p(weights.data_ptr()),
                left,
                c_void_p(rows.data_ptr()),
                right,
                byref(c_float(1.0 if self.adds else 0.0)),
                c_void_p(out.data_ptr()) if self.adds else None,
                added,
                c_void_p(out.data_ptr()),
                made,
                byref(algorithm, _Algorithm.algorithm.offset),
                c_void_p(workspace.data_ptr()),
                c_size_t(algorithm.workspace),
                c_void_p(torch.cuda.current_stream(out.device).cuda_stream),
            )
        )
        return out

    def _create(self, kind: str, *values: Any) -> c_void_p:
        made = c_void_p()
        _check(getattr(self.library, f"cublasLt{kind}Create")(byref(made), *values))
        return made

    def _set(self, attribute: int, value: Any) -> None:
        set_attribute = self.library.cublasLtMatmulDescSetAttribute
        _check(set_attribute(self.description, c_int(attribute), byref(value), c_size_t(sizeof(value))))


_lock = Lock()  # a plan holds what the next product has of its own


def _laid_out(matrix: Tensor) -> Tensor:
    """Row after row in memory, which is how the library reads it, from an aligned address; a copy where it is not."""
    is_laid_out = matrix.is_contiguous() and matrix.data_ptr() % ALIGNED == 0
    return matrix if is_laid_out else matrix.clone(memory_format=torch.contiguous_format)


@cache
def _plan(kind: _Kind, bits: int, device: torch.device) -> _Plan:
    """The plan of numbers of rows of so many bits."""
    return _Plan(kind, device)


def _find_fastest(plan: _Plan, rows: Tensor, weights: Tensor, out: Tensor) -> _Algorithm:
    """By trial; `out` is written over. Where runs must repeat themselves, the first, whatever the clock says."""
    found = plan.candidates()
    if torch.are_deterministic_algorithms_enabled():
        return found[0]
    times = [_milliseconds(partial(plan.run, tried, rows, weights, out)) for tried in found]
    best = times.index(min(times))
    return found[best if times[best] < GAIN * times[0] else 0]


def _milliseconds(run: Callable[[], object]) -> float:
    """Of some runs, one right after another as in a model, after one that does not count."""
    run()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(TRIES):
        run()
    ended.record()
    ended.synchronize()
    taken: float = began.elapsed_time(ended)
    return taken


@cache
def _library() -> Any:
    """The very library that torch has loaded, or None."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if maps.is_file() else []
    path = _mapped(lines)
    return None if path is None else ctypes.CDLL(path)


def _mapped(lines: list[str]) -> str | None:
    """Where the library lies, of a process's maps: five fields, then a path that may have spaces."""
    return next((line.split(maxsplit=5)[5] for line in lines if "/libcublasLt.so" in line), None)


@cache
def _on(device: torch.device) -> tuple[Any, c_void_p]:
    """The library and its handle for a device."""
    library, handle = _library(), c_void_p()
    with torch.cuda.device(device):
        _check(library.cublasLtCreate(byref(handle)))
    return library, handle


def _check(status: int) -> None:
    if status:
        what = "does not support this product" if status == NOT_SUPPORTED else f"answered with status {status}"
        raise RuntimeError(f"cuBLASLt {what}")
