"""`model-int8.safetensors`: matrices as eight-bit rows, a quarter of float32's size, expanded when they are read.

Each matrix NAME is stored as int8 beside NAME.scales, one float32 a row, and means row * scale; vectors (biases,
LayerNorms) stay float32. Every value is off by at most half a scale. The file has a name of its own because a reader
who does not know the scales would take the integers for the weights.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.model.formats.safetensors_files import read_safetensors

NAME = "model-int8.safetensors"
SCALES = ".scales"
LARGEST = 127


def shrink(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the file holds of these tensors."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() != 2:
            stored[name] = tensor.float()
            continue
        stored[name], stored[name + SCALES] = shrink_rows(tensor.float())
    return dict(sorted(stored.items()))


def shrink_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as integers from -127 to 127, and the scale of each; a row of zeros has scale 0."""
    largest = matrix.abs().amax(dim=1)
    if not torch.isfinite(largest).all():
        raise BertkitError("weights that are not finite cannot be stored in eight bits; choose another layout")
    scales = largest / LARGEST
    rows = torch.round(matrix / torch.where(scales > 0, scales, 1.0)[:, None])
    return rows.clamp(-LARGEST, LARGEST).to(torch.int8), scales


def read_int8(path: Path) -> dict[str, Tensor]:
    """The tensors of such a file, in float32."""
    stored = read_safetensors(path)
    return {name: _expand(path, name, stored) for name in stored if not name.endswith(SCALES)}


def _expand(path: Path, name: str, stored: Mapping[str, Tensor]) -> Tensor:
    tensor, scales = stored[name], stored.get(name + SCALES)
    if tensor.dtype != torch.int8:
        return tensor
    if scales is None or tensor.dim() != 2 or scales.shape != tensor.shape[:1]:
        raise BertkitError(f"{path}: {name} lacks a scale for each of its rows; write the file anew")
    return tensor.float() * scales[:, None]
