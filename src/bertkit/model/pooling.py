"""Token vectors -> one vector a sequence, over its real tokens alone: masked mean, [CLS] or max."""

from typing import Literal

import torch
from torch import Tensor

from bertkit.model.packed import PackedBatch

Pooling = Literal["mean", "cls", "max"]


def pool(hidden_TD: Tensor, batch: PackedBatch, pooling: Pooling) -> Tensor:
    """One vector a sequence, [N, D]; there is no padding that could leak in."""
    if pooling == "cls":
        return hidden_TD if hidden_TD.shape[0] == len(batch) else hidden_TD[batch.cls_rows]
    lengths = batch.cu_seqlens.diff().long()
    # float32 sums: half precision would lose digits over hundreds of tokens
    return torch.segment_reduce(hidden_TD.float(), pooling, lengths=lengths, axis=0)
