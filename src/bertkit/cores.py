"""How many cores there are to share out, and what they can; every room may ask."""

import os
from functools import cache


def num_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def has_bfloat16() -> bool:
    """Whether they multiply bfloat16 by instructions of their own: without these float32 is the faster one."""
    import torch  # not at the top: --help does without

    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
