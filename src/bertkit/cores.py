"""How many cores there are to share out, and what they can; every room may ask."""

import os
from functools import cache
from pathlib import Path


def num_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def has_bfloat16() -> bool:
    """Whether they multiply bfloat16 by instructions of their own: without these float32 is the faster one."""
    import torch  # not at the top: --help does without

    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


@cache
def has_slow_mkl() -> bool:
    """Whether they are AMD's and have AVX-512, of which Intel's MKL, by which PyTorch multiplies float32, makes no use."""
    import torch

    is_asked = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return is_asked and torch.cpu._is_avx512_supported() and _vendor() == "AuthenticAMD"


def _vendor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return ""
    return next((line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")), "")
