"""Token vectors -> one vector a sequence, over its real tokens alone: masked mean, [CLS] or max."""

import importlib.util
from typing import Literal

import torch
from torch import Tensor

from bertkit.model.fast_inference import CAPABILITY
from bertkit.model.packed import PackedBatch
from bertkit.model.trial import run_or_none

Pooling = Literal["mean", "cls", "max"]


def pool(hidden_TD: Tensor, batch: PackedBatch, pooling: Pooling) -> Tensor:
    """One vector a sequence, [N, D]; there is no padding that could leak in."""
    if pooling == "cls":
        return hidden_TD if hidden_TD.shape[0] == len(batch) else hidden_TD[batch.cls_rows]
    if pooling == "mean" and _takes_kernel(hidden_TD):
        made = run_or_none(("means", hidden_TD.device, hidden_TD.dtype), lambda: _mean_rows(hidden_TD, batch))
        if made is not None:
            return made
    lengths = batch.cu_seqlens.diff().long()
    # float32 sums: half precision would lose digits over hundreds of tokens. "unsafe" leaves out a check of the lengths
    # for which the host would wait until a GPU is done.
    return torch.segment_reduce(hidden_TD.float(), pooling, lengths=lengths, axis=0, unsafe=True)


def _takes_kernel(hidden_TD: Tensor) -> bool:
    """Whether a copy in float32 is saved: half precision on an NVIDIA GPU that has kernels, no gradient asked for."""
    is_half = hidden_TD.dtype in (torch.bfloat16, torch.float16)
    if not hidden_TD.is_cuda or not is_half or hidden_TD.requires_grad or torch.version.hip is not None:
        return False
    can = torch.cuda.get_device_capability(hidden_TD.device) >= CAPABILITY
    return can and importlib.util.find_spec("triton") is not None


def _mean_rows(hidden_TD: Tensor, batch: PackedBatch) -> Tensor:
    from bertkit.model.kernels.pooling import mean_rows

    return mean_rows(hidden_TD.contiguous(), batch.cu_seqlens)
