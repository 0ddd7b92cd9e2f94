"""Many encodings become few packed batches: sorted by length, limited by tokens, results back in the order given.

Sorting puts texts of about one length together, which is what attention backends that pad want; the token limit
bounds memory whatever the texts are.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.model.budgets import VECTORS
from bertkit.model.packed import PackedBatch, pack, plan_batches

T = TypeVar("T")
R = TypeVar("R")


class Sequenced(Protocol):
    """What a batch is made of: a tokenizer's Encoding, or anything else with these two lists."""

    @property
    def ids(self) -> list[int]: ...

    @property
    def segment_ids(self) -> list[int]: ...


def default_max_tokens(device: torch.device) -> int:
    """The token budget of one batch on this device."""
    return VECTORS.on(device)


def run_in_batches(
    sequences: Sequence[Sequenced],
    run: Callable[[PackedBatch, list[int]], Sequence[R]],
    device: torch.device,
    max_tokens: int | None = None,
) -> list[R]:
    """Call `run` with each batch and the indices in it; collect one result a sequence, in the order given."""
    results: dict[int, R] = {}
    for indices in plan_batches([len(s.ids) for s in sequences], max_tokens or default_max_tokens(device)):
        batch = pack_on(device, [sequences[index] for index in indices])
        results.update(zip(indices, run(batch, indices), strict=True))
    return [results[index] for index in range(len(sequences))]


def vectors_in_batches(
    sequences: Sequence[Sequenced],
    run: Callable[[PackedBatch], Tensor],
    device: torch.device,
    max_tokens: int | None = None,
) -> NDArray[np.float32]:
    """One row a sequence, [N, D], in the order given; a GPU computes one batch while the next is laid out."""
    order: list[int] = []
    parts: list[Tensor] = []
    for indices in plan_batches([len(s.ids) for s in sequences], max_tokens or default_max_tokens(device)):
        order += indices
        parts.append(run(pack_on(device, [sequences[index] for index in indices])))
    rows: NDArray[np.float32] = torch.cat(parts).cpu().numpy()
    vectors = np.empty_like(rows)
    vectors[order] = rows
    return vectors


def pack_on(device: torch.device, sequences: Sequence[Sequenced]) -> PackedBatch:
    """Lay these sequences end to end on a device, without waiting for what it still computes."""
    batch = pack_sequences(sequences)
    return send(batch, device) if device.type == "cuda" else batch.to(device)


def send(batch: PackedBatch, device: torch.device) -> PackedBatch:
    """The same batch there by one transfer, for which the host does not wait; positions are counted there, from 0.

    By numpy on this side: torch would copy with many threads, and wait for those that tokenize meanwhile. torch gives the
    pinned memory to nobody else before the copy has ended.
    """
    num, total = len(batch), batch.num_tokens
    host = torch.empty(num + 1 + 2 * total, dtype=torch.int32, pin_memory=device.type == "cuda")
    parts = [batch.cu_seqlens.numpy(), batch.token_ids.numpy(), batch.segment_ids.numpy()]
    np.concatenate(parts, out=host.numpy(), casting="same_kind")
    cu_seqlens, token_ids, segment_ids = host.to(device, non_blocking=True).split([num + 1, total, total])
    starts = torch.repeat_interleave(cu_seqlens[:-1], cu_seqlens.diff(), output_size=total)
    positions = torch.arange(total, device=device) - starts
    return PackedBatch(token_ids.long(), segment_ids.long(), positions, cu_seqlens, batch.max_seqlen)


def pack_sequences(sequences: Sequence[Sequenced]) -> PackedBatch:
    """Lay these sequences end to end."""
    return pack([sequence.ids for sequence in sequences], [sequence.segment_ids for sequence in sequences])


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, each made in another thread while the one before is in use: tokenizing beside computing."""
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, iterator, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, iterator, end)
            yield item  # type: ignore[misc]


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of up to `size` items, so that an endless stream is never held whole."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
