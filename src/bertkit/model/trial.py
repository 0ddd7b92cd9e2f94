"""Kernels may fail where everything looks right: no C compiler for Triton, too little memory on chip, a product that this
GPU's library lacks. What runs for the first time is a trial; where it fails its plain twin computes, and one line says so.
"""

import warnings
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

WARNING = "our GPU kernels do not run here, and PyTorch computes instead"
MOST_SHOWN = 160  # characters of an error
_went_well: dict[Hashable, bool] = {}


def run_or_none(key: Hashable, run: Callable[[], Tensor]) -> Tensor | None:
    """What `run` gives, or None where it fails or has failed with this key; once it went well, errors are errors."""
    if _went_well.get(key):
        return run()
    if key in _went_well:
        return None
    try:
        made = run()
    except torch.OutOfMemoryError:  # says nothing of the next batch
        raise
    except Exception as error:
        warnings.warn(f"{WARNING}: {_reason(error)}", stacklevel=2)
        _went_well[key] = False  # after the warning: whoever makes that an error gets it every time
        return None
    _went_well[key] = True
    return made


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:MOST_SHOWN]
