"""Copies of whole tiles by the GPU itself, as Hopper has them: threads that need not copy have registers and time left."""

from functools import cache

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

HOPPER = 9  # its major compute capability; on others nothing of this has been measured
ALIGNED = 16  # bytes that a row must be a multiple of


@cache
def copies_in_bulk(device: torch.device) -> bool:
    """Whether kernels made for it run on this device."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == HOPPER


def in_tiles(matrix: Tensor, height: int, width: int) -> TensorDescriptor:
    """A matrix that is read or written tile by tile; beyond its edges lie zeros, and nothing is written there."""
    return TensorDescriptor.from_tensor(matrix, [height, width])
