"""In which type steps are computed, chosen here by what a device can: bfloat16, float16 with a scaled loss, float32.

Weights, gradients and the optimizer's state are float32 whatever this is. float16 has a narrow range: its loss is
scaled up before the backward pass, gradients down after it, and a step that overflowed is left out. A CPU computes in
float32, unless bfloat16 is asked for and among its instructions.
"""

from typing import Literal

import torch

from bertkit.cores import has_bfloat16
from bertkit.errors import BertkitError

Precision = Literal["auto", "float32", "bfloat16", "float16"]
PRECISIONS: tuple[Precision, ...] = ("auto", "float32", "bfloat16", "float16")
Resolved = Literal["float32", "bfloat16", "float16"]


def check_precision(precision: str) -> None:
    """Refuse what is none."""
    if precision not in PRECISIONS:
        raise BertkitError(f"unknown precision {precision!r}; choose one of {', '.join(PRECISIONS)}")


def resolve_precision(precision: Precision, device: torch.device) -> Resolved:
    """What `auto` means on this device; what it cannot do is refused."""
    if device.type != "cuda":
        return _resolve_on_cpu(precision, device)
    best: Resolved = "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    if precision == "auto":
        return best
    if precision == "bfloat16" and best != "bfloat16":
        raise BertkitError("this GPU has no bfloat16; set precision = 'auto', which takes float16 here")
    return precision


def _resolve_on_cpu(precision: Precision, device: torch.device) -> Resolved:
    if precision == "float16":
        raise BertkitError(f"float16 needs a CUDA GPU, not {device.type}; set precision = 'float32'")
    if precision == "bfloat16" and not has_bfloat16():
        raise BertkitError("this CPU has no bfloat16, and no GPU is used; set precision = 'float32'")
    return "float32" if precision == "auto" else precision


def narrow_type(precision: Resolved) -> torch.dtype | None:
    """The type of products; None: float32 throughout."""
    return {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}[precision]
