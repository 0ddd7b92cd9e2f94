"""The packed layout: rows, positions and the way back."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertkit.model import pack

sequences = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=12), min_size=1, max_size=8)


@given(sequences)
def test_pack_lays_sequences_end_to_end(rows: list[list[int]]) -> None:
    batch = pack(rows)
    assert len(batch) == len(rows)
    assert [part.tolist() for part in batch.split(batch.token_ids)] == rows
    assert [part.tolist() for part in batch.split(batch.position_ids)] == [list(range(len(row))) for row in rows]
    assert batch.max_seqlen == max(map(len, rows))
    assert batch.token_ids[batch.cls_rows].tolist() == [row[0] for row in rows]
    assert batch.sequence_of_token.tolist() == [n for n, row in enumerate(rows) for _ in row]


def test_segments_default_to_the_first() -> None:
    assert pack([[1, 2], [3]]).segment_ids.tolist() == [0, 0, 0]
    assert pack([[1, 2], [3]], [[0, 1], [1]]).segment_ids.tolist() == [0, 1, 1]


def test_an_empty_batch_is_a_batch() -> None:
    batch = pack([])
    assert (len(batch), batch.num_tokens, batch.max_seqlen) == (0, 0, 0)
    assert batch.token_ids.dtype == torch.int64


@pytest.mark.parametrize(("device", "unwatched"), [("cpu", False), ("mps", False), ("cuda:1", True)])
def test_the_host_waits_for_copies_unless_they_go_to_cuda(
    device: str, unwatched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy from a GPU to the CPU that nobody waits for is read before it is there."""
    asked: list[Any] = []

    def move(tensor: torch.Tensor, there: str, *, non_blocking: bool) -> torch.Tensor:
        asked.append((there, non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", move)
    pack([[1, 2], [3]]).to(device)
    assert asked == [(device, unwatched)] * 4
