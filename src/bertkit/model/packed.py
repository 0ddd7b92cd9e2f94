"""The one batch layout: sequences laid end to end, without padding.

T tokens of N sequences; sequence n is the slice cu_seqlens[n] : cu_seqlens[n + 1]. Everything but attention
works on the T real tokens, so a batch is limited by tokens and not by rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PackedBatch:
    """N sequences of T tokens in all."""

    token_ids: Tensor  # [T] int64
    segment_ids: Tensor  # [T] int64
    position_ids: Tensor  # [T] int64
    cu_seqlens: Tensor  # [N + 1] int32, starts at 0 and ends at T
    max_seqlen: int

    def __len__(self) -> int:
        return self.cu_seqlens.shape[0] - 1

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.token_ids.shape[0]

    @property
    def cls_rows(self) -> Tensor:
        """Where each sequence begins, so where its [CLS] stands: [N]."""
        return self.cu_seqlens[:-1].long()

    @property
    def sequence_of_token(self) -> Tensor:
        """Which sequence each token belongs to: [T]."""
        tokens = torch.arange(self.num_tokens, dtype=torch.int32, device=self.cu_seqlens.device)
        return torch.bucketize(tokens, self.cu_seqlens[1:], right=True)

    def to(self, device: torch.device | str) -> "PackedBatch":
        """The same batch on another device."""
        tensors = (self.token_ids, self.segment_ids, self.position_ids, self.cu_seqlens)
        tokens, segments, positions, cu_seqlens = (tensor.to(device, non_blocking=True) for tensor in tensors)
        return PackedBatch(tokens, segments, positions, cu_seqlens, self.max_seqlen)

    def split(self, hidden: Tensor) -> tuple[Tensor, ...]:
        """Cut a [T, ...] tensor back into one tensor per sequence."""
        return torch.split(hidden, self.cu_seqlens.diff().tolist())


def pack(token_ids: Sequence[Sequence[int]], segment_ids: Sequence[Sequence[int]] | None = None) -> PackedBatch:
    """Lay sequences end to end; without segment ids every token is of segment 0."""
    lengths = [len(sequence) for sequence in token_ids]
    flat = torch.tensor([token for sequence in token_ids for token in sequence], dtype=torch.int64)
    if segment_ids is None:
        segments = torch.zeros_like(flat)
    else:
        segments = torch.tensor([segment for sequence in segment_ids for segment in sequence], dtype=torch.int64)
    return PackedBatch(
        token_ids=flat,
        segment_ids=segments,
        position_ids=torch.cat([torch.arange(length) for length in lengths] or [flat]),
        cu_seqlens=torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32),
        max_seqlen=max(lengths, default=0),
    )
