"""Token-limited batches: nothing lost, nothing over the limit, results in the order given."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertkit.inference.batching import chunked, run_in_batches, send, vectors_in_batches
from bertkit.inference.bert import Bert
from bertkit.model.packed import PackedBatch, pack, plan_batches

CPU = torch.device("cpu")


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 100))
def test_every_sequence_is_in_one_batch_within_the_limit(lengths: list[int], max_tokens: int) -> None:
    batches = plan_batches(lengths, max_tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= max_tokens


@given(st.lists(st.integers(0, 9)), st.integers(1, 5))
def test_chunks_are_bounded_and_complete(items: list[int], size: int) -> None:
    chunks = list(chunked(iter(items), size))
    assert [item for chunk in chunks for item in chunk] == items
    assert all(len(chunk) <= size for chunk in chunks)


def test_results_come_back_in_order(bert: Bert) -> None:
    encodings = [bert.tokenizer.encode("the dog " * n) for n in (3, 1, 7, 2, 5)]
    lengths = run_in_batches(encodings, lambda batch, _: batch.cu_seqlens.diff().tolist(), CPU, max_tokens=12)
    assert lengths == [len(encoding) for encoding in encodings]


BATCHES = [
    pack([[2, 5, 3], [2, 3], [2, 7, 8, 9, 3]], [[0, 0, 0], [0, 0], [0, 0, 1, 1, 1]]),
    pack([[], [2, 3], []]),
    pack([[2]]),
    pack([]),
]


def assert_sent(batch: PackedBatch, device: torch.device) -> None:
    sent = send(batch, device)
    for name in ("token_ids", "segment_ids", "position_ids", "cu_seqlens"):
        assert torch.equal(getattr(sent, name).cpu(), getattr(batch, name)), name
        assert getattr(sent, name).dtype == getattr(batch, name).dtype
    assert sent.max_seqlen == batch.max_seqlen


@pytest.mark.parametrize("batch", BATCHES)
def test_a_batch_that_was_sent_is_the_same(batch: PackedBatch) -> None:
    assert_sent(batch, CPU)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run by `make test-gpu`")
@pytest.mark.parametrize("batch", BATCHES)
def test_a_batch_that_was_sent_to_a_gpu_is_the_same(batch: PackedBatch) -> None:
    assert_sent(batch, torch.device("cuda", 0))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run by `make test-gpu`")
def test_batches_sent_one_right_after_another_do_not_mix(bert: Bert) -> None:
    encodings = [bert.tokenizer.encode("the dog " * (1 + n % 20)) for n in range(400)]

    def sums(batch: PackedBatch) -> torch.Tensor:
        torch.cuda._sleep(1_000_000)  # the device is busy while the next batches are sent
        ids = torch.segment_reduce(batch.token_ids.float(), "sum", lengths=batch.cu_seqlens.diff().long())
        return ids[:, None]

    found = vectors_in_batches(encodings, sums, torch.device("cuda", 0), max_tokens=100)
    assert found[:, 0].tolist() == [float(sum(encoding.ids)) for encoding in encodings]
