"""The one batch layout: sequences laid end to end, without padding.

T tokens of N sequences; sequence n is the slice cu_seqlens[n] : cu_seqlens[n + 1]. Everything but attention
works on the T real tokens, so a batch is limited by tokens and not by rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class PackedBatch:
    """N sequences of T tokens in all."""

    token_ids: Tensor  # [T] int64
    segment_ids: Tensor  # [T] int64
    position_ids: Tensor  # [T] int64
    cu_seqlens: Tensor  # [N + 1] int32, starts at 0 and ends at T
    max_seqlen: int
    reach: int = 0  # positions lie below it; 0: below max_seqlen, since every sequence begins at position 0

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

    def last_rows_of(self, rows_R: Tensor) -> Tensor:
        """The last row of the sequence in which each of these rows stands: [R]."""
        sequences = torch.bucketize(rows_R, self.cu_seqlens[1:].to(rows_R.dtype), right=True)
        return self.cu_seqlens[1:].long()[sequences] - 1

    def to(self, device: torch.device | str) -> "PackedBatch":
        """The same batch on another device."""
        return move_tensors(self, device)

    def split(self, hidden: Tensor) -> tuple[Tensor, ...]:
        """Cut a [T, ...] tensor back into one tensor per sequence."""
        return torch.split(hidden, self.cu_seqlens.diff().tolist())


def map_tensors(batch: T, change: Callable[[Tensor], Tensor]) -> T:
    """The same dataclass with every tensor in it changed."""
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(batch)):  # type: ignore[arg-type]
        value = getattr(batch, name)
        if isinstance(value, Tensor):
            values[name] = change(value)
        else:
            values[name] = map_tensors(value, change) if is_dataclass(value) else value
    return type(batch)(**values)


def move_tensors(batch: T, device: torch.device | str) -> T:
    """The same dataclass with every tensor in it on another device."""
    # Only on its way to CUDA may a tensor be left alone: torch keeps what it still copies from, or copies at once.
    unwatched = torch.device(device).type == "cuda"
    return map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=unwatched))


def pack(token_ids: Sequence[Sequence[int]], segment_ids: Sequence[Sequence[int]] | None = None) -> PackedBatch:
    """Lay sequences end to end; without segment ids every token is of segment 0."""
    lengths = np.array([0, *map(len, token_ids)])
    ends = lengths.cumsum()
    flat = _lay_end_to_end(token_ids)
    segments = torch.zeros_like(flat) if segment_ids is None else _lay_end_to_end(segment_ids)
    return PackedBatch(
        token_ids=flat,
        segment_ids=segments,
        position_ids=torch.from_numpy(np.arange(ends[-1]) - np.repeat(ends[:-1], lengths[1:])),
        cu_seqlens=torch.from_numpy(ends.astype(np.int32)),
        max_seqlen=int(lengths.max()),
    )


def _lay_end_to_end(sequences: Sequence[Sequence[int]]) -> Tensor:
    return torch.from_numpy(np.fromiter(chain.from_iterable(sequences), np.int64))


def plan_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices of the sequences of each batch, longest first so that what does not fit in memory fails early.

    A batch holds at most max_tokens tokens (counted as its longest times its number), and at least one sequence.
    """
    batches: list[list[int]] = []
    room = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not room:
            batches.append([])
            room = max(1, max_tokens // max(1, lengths[index]))
        batches[-1].append(index)
        room -= 1
    return batches
