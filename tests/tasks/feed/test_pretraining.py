"""The feed: batches of one shape, a pure function of (seed, index), with counts that are true."""

import pickle
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from bertkit.corpus import packing
from bertkit.corpus.masking import MaskingConfig
from bertkit.corpus.packing import check_capacities
from bertkit.corpus.pairs import MemoryShard
from bertkit.errors import BertkitError
from bertkit.model import BertModel, preset
from bertkit.tasks.feed.arrays import ArrayFeed
from bertkit.tasks.feed.epochs import FeedConfig, build_epoch, load_epoch, save_epoch
from bertkit.tasks.feed.pretraining import PretrainingFeed, held_out_feed
from bertkit.tasks.feed.sources import FeedVocabulary
from bertkit.tasks.pretraining import IGNORED, IS_NEXT, NOT_NEXT, PretrainingBatch, pretraining_losses

CLS, SEP, MASK, PAD, UNK = 1, 2, 3, 0, 4
VOCABULARY = FeedVocabulary(
    CLS, SEP, MASK, PAD, np.arange(1000) < 5, (np.arange(1000) % 3 == 0) & (np.arange(1000) > 4), np.arange(5, 1000)
)
CONFIG = FeedConfig(max_length=64, tokens_per_batch=1024, seed=7)


@dataclass(frozen=True)
class MemoryStore:
    shards: list[MemoryShard]


def make_store(num_documents: int = 60, num_shards: int = 3, seed: int = 0) -> MemoryStore:
    """Random tokens, some of them [UNK]."""
    random = np.random.default_rng(seed)

    def document() -> list[list[int]]:
        return [random.integers(4, 1000, random.integers(2, 30)).tolist() for _ in range(random.integers(2, 30))]

    shards = [MemoryShard.of([document() for _ in range(num_documents // num_shards)]) for _ in range(num_shards)]
    return MemoryStore(shards)


STORE = make_store()


def equal(one: PretrainingBatch, other: PretrainingBatch) -> bool:
    pairs = [
        (one.inputs.token_ids, other.inputs.token_ids),
        (one.inputs.segment_ids, other.inputs.segment_ids),
        (one.inputs.position_ids, other.inputs.position_ids),
        (one.inputs.cu_seqlens, other.inputs.cu_seqlens),
        (one.masked_positions, other.masked_positions),
        (one.masked_token_ids, other.masked_token_ids),
        (one.next_labels, other.next_labels),
    ]
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("nsp", [True, False])
@pytest.mark.parametrize("whole_word", [False, True])
def test_batches_have_one_shape_and_true_counts(nsp: bool, whole_word: bool) -> None:
    feed = PretrainingFeed(STORE, VOCABULARY, replace(CONFIG, nsp=nsp, masking=MaskingConfig(whole_word=whole_word)))
    capacities = feed.capacities
    for index in (0, 1, feed.epoch_size - 1, feed.epoch_size, 3 * feed.epoch_size + 2):
        batch, counts = feed.micro_batch(index), feed.counts(index)
        assert batch.inputs.num_tokens == capacities.num_tokens == 1024
        assert len(batch.inputs) == len(batch.next_labels) == capacities.num_sequences
        assert len(batch.masked_positions) == len(batch.masked_token_ids) == capacities.num_masked
        assert batch.inputs.max_seqlen == 64
        assert batch.inputs.cu_seqlens.dtype == torch.int32
        assert (batch.masked_token_ids != IGNORED).sum() == counts.num_masked
        assert (batch.masked_positions[batch.masked_token_ids == IGNORED] == 0).all()
        assert (batch.next_labels != IGNORED).sum() == counts.num_pairs
        assert counts.num_tokens == 1024 - (batch.inputs.token_ids == PAD).sum()


def test_shifted_rows_begin_at_any_position_and_pass_none() -> None:
    plain = PretrainingFeed(STORE, VOCABULARY, CONFIG)
    feed = PretrainingFeed(STORE, VOCABULARY, replace(CONFIG, shifted_share=0.5, num_positions=100))
    starts = []
    for index in range(feed.epoch_size):
        batch, same = feed.micro_batch(index), plain.micro_batch(index)
        assert (same.inputs.reach, batch.inputs.reach) == (64, 100)
        shifts = batch.inputs.position_ids - same.inputs.position_ids
        bounds = batch.inputs.cu_seqlens.tolist()
        for start, end in pairwise(bounds):
            if end > start:
                assert shifts[start:end].unique().numel() == 1  # a row stays a row
                if batch.inputs.token_ids[start] == CLS:
                    starts.append(int(shifts[start]))
                else:
                    assert shifts[start] == 0  # a dummy
        assert batch.inputs.position_ids.max() < 100
        assert torch.equal(batch.inputs.token_ids, same.inputs.token_ids)  # nothing else is drawn anew
    moved = [start for start in starts if start]
    assert 0.35 < len(moved) / len(starts) < 0.65
    assert max(moved) > 30  # a full row ends at the last position
    assert equal(feed.micro_batch(5), PretrainingFeed(STORE, VOCABULARY, feed.arrays.config).micro_batch(5))


def test_held_out_rows_are_never_shifted() -> None:
    shifted = replace(CONFIG, shifted_share=1.0, num_positions=100)
    one, other = (held_out_feed(STORE, VOCABULARY, config).micro_batch(1) for config in (CONFIG, shifted))
    assert equal(one, other)
    assert other.inputs.reach == 64
    with pytest.raises(BertkitError, match=r"shifted_share is 1\.5"):
        replace(CONFIG, shifted_share=1.5)


def test_sequences_are_framed_and_the_rest_is_dummy() -> None:
    feed = PretrainingFeed(STORE, VOCABULARY, CONFIG)
    for index in (0, 5, feed.epoch_size - 1):
        batch, counts = feed.micro_batch(index), feed.counts(index)
        ids, segments, positions = (batch.inputs.split(part) for part in tensors(batch))
        is_real = batch.next_labels != IGNORED
        assert is_real.sum() == counts.num_pairs
        for row, tokens in enumerate(ids):
            assert positions[row].tolist() == list(range(len(tokens)))
            if is_real[row]:
                assert tokens[0] == CLS
                assert tokens[-1] == SEP
                assert (tokens == SEP).sum() == 2
                middle = tokens.tolist().index(SEP)
                assert segments[row].tolist() == [0] * (middle + 1) + [1] * (len(tokens) - middle - 1)
            else:
                assert (tokens == PAD).all()
                assert len(tokens) <= 64
        assert (batch.inputs.cls_rows < 1024).all()  # also of slots without tokens


def tensors(batch: PretrainingBatch) -> tuple[torch.Tensor, ...]:
    return batch.inputs.token_ids, batch.inputs.segment_ids, batch.inputs.position_ids


def test_special_tokens_are_never_masked_and_targets_are_the_truth() -> None:
    feed = PretrainingFeed(STORE, VOCABULARY, replace(CONFIG, masking=MaskingConfig(rate=0.5)))
    for index in range(10):
        batch = feed.micro_batch(index)
        used = batch.masked_token_ids != IGNORED
        assert (batch.masked_token_ids[used] > UNK).all()
        assert (batch.inputs.token_ids[batch.masked_positions[used]] != CLS).all()


def test_labels_are_those_of_the_loss() -> None:
    assert packing.IGNORED == IGNORED
    feed = PretrainingFeed(STORE, VOCABULARY, CONFIG)
    _, epoch, rows = feed.arrays.examples(3)
    labels = feed.micro_batch(3).next_labels
    expected = [IS_NEXT if is_next else NOT_NEXT for is_next in epoch.plan.is_next[rows]]
    assert labels[labels != IGNORED].tolist() == expected


def test_the_loss_of_a_batch_with_empty_slots_is_finite() -> None:
    feed = PretrainingFeed(STORE, VOCABULARY, CONFIG)
    model = BertModel(preset("tiny", vocab_size=1000))
    losses = pretraining_losses(model, feed.micro_batch(feed.epoch_size - 1))
    (losses.mlm_sum + losses.nsp_sum).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_order_is_a_function_of_seed_and_index() -> None:
    feed = PretrainingFeed(STORE, VOCABULARY, CONFIG)
    count = 2 * feed.epoch_size + 3
    stream = [feed.micro_batch(index) for index in range(count)]
    resumed = PretrainingFeed(STORE, VOCABULARY, CONFIG)  # nothing of the first one is known to it
    assert equal(resumed.micro_batch(count - 1), stream[-1])
    assert equal(resumed.micro_batch(2), stream[2])
    for world in (2, 8):
        ranks = [PretrainingFeed(STORE, VOCABULARY, CONFIG) for _ in range(world)]
        for index in range(0, count, 5):
            assert equal(ranks[index % world].micro_batch(index), stream[index])
    other = PretrainingFeed(STORE, VOCABULARY, replace(CONFIG, seed=8))
    assert not equal(other.micro_batch(0), stream[0])


def test_another_epoch_draws_other_pairs_and_masks() -> None:
    feed = PretrainingFeed(STORE, VOCABULARY, CONFIG)
    first, second = feed.arrays.epoch(0).plan, feed.arrays.epoch(1).plan
    pairs = [set(zip(plan.a_starts.tolist(), plan.b_starts.tolist(), strict=True)) for plan in (first, second)]
    assert len(pairs[0] & pairs[1]) < 0.2 * len(pairs[0])
    ids, offsets, rows = np.full(40, 9), np.array([0, 40]), np.array([0])
    masks = [feed.arrays._mask(ids, offsets, epoch, rows).positions.tolist() for epoch in (0, 1, 0)]
    assert masks[0] != masks[1]
    assert masks[0] == masks[2]


def test_an_epoch_holds_every_example_once() -> None:
    feed = PretrainingFeed(STORE, VOCABULARY, CONFIG)
    seen = np.concatenate([feed.arrays.examples(index)[2] for index in range(feed.epoch_size)])
    assert sorted(seen.tolist()) == list(range(len(feed.arrays.epoch(0).plan)))


def test_held_out_masking_is_the_papers_and_its_own() -> None:
    training = PretrainingFeed(
        STORE, VOCABULARY, replace(CONFIG, masking=MaskingConfig(rate=0.4, mask_share=1.0, random_share=0))
    )
    held_out = held_out_feed(STORE, VOCABULARY, training.arrays.config, seed=7)
    before = training.micro_batch(1)
    counts = [held_out.counts(index) for index in range(held_out.epoch_size)]
    share = sum(c.num_masked for c in counts) / sum(c.num_tokens - 3 * c.num_pairs for c in counts)
    assert 0.145 < share < 0.155
    assert equal(training.micro_batch(1), before)
    same_rate = PretrainingFeed(STORE, VOCABULARY, CONFIG)
    assert not torch.equal(same_rate.micro_batch(0).masked_positions, held_out.micro_batch(0).masked_positions)
    with pytest.raises(BertkitError, match="no micro-batch"):
        held_out.micro_batch(held_out.epoch_size)


def test_capacities_can_be_given_and_are_checked_at_once() -> None:
    feed = PretrainingFeed(STORE, VOCABULARY, replace(CONFIG, num_sequences=64, num_masked=300))
    assert (feed.capacities.num_sequences, feed.capacities.num_masked) == (64, 300)
    with pytest.raises(BertkitError, match="num_masked"):
        PretrainingFeed(STORE, VOCABULARY, replace(CONFIG, num_masked=100))
    with pytest.raises(BertkitError, match="not even one sequence"):
        FeedConfig(max_length=128, tokens_per_batch=64)


def test_no_epoch_of_a_tiny_store_overruns() -> None:
    """Without room for what the 43rd epoch draws, all but a few of its examples are there, and the run goes on."""
    feed = PretrainingFeed(make_store(3, 1, seed=3), VOCABULARY, replace(CONFIG, tokens_per_batch=256, nsp=False))
    assert feed.capacities.num_sequences == 8
    whole = build_epoch(feed.arrays.layout, feed.arrays.config, 42, feed.epoch_size, None)
    with pytest.raises(BertkitError, match="needs num_sequences 9, the capacity is 8"):
        check_capacities(whole.packing, feed.arrays.config.masking, feed.capacities, 2)
    kept = feed.arrays.epoch(42).packing
    assert (len(kept), len(kept.order)) == (len(whole.packing), len(whole.packing.order) - 1)
    for index in range(42 * feed.epoch_size, 43 * feed.epoch_size):
        masked = feed.micro_batch(index).masked_token_ids
        assert (masked != IGNORED).sum() == feed.counts(index).num_masked > 0


def test_whole_words_of_many_pieces_do_not_overrun() -> None:
    pieces = FeedVocabulary(CLS, SEP, MASK, PAD, np.arange(1000) < 5, np.arange(1000) > 5, np.arange(5, 1000))
    shard = MemoryShard.of([[[5, *range(6, 26)] for _ in range(4)] for _ in range(8)])  # a word a sentence
    config = replace(CONFIG, max_length=32, tokens_per_batch=256, masking=MaskingConfig(whole_word=True))
    feed = PretrainingFeed(MemoryStore([shard]), pieces, replace(config, nsp=False))
    masks = [feed.counts(index).num_masked for index in range(feed.epoch_size)]
    assert max(masks) == feed.capacities.num_masked
    for index, count in enumerate(masks):
        batch = feed.micro_batch(index)
        assert (batch.masked_token_ids != IGNORED).sum() == count
        assert (batch.inputs.token_ids == MASK).sum() <= count


def test_a_feed_travels_to_other_processes_by_the_names_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_bytes(STORE.shards[0].tokens.astype(np.uint16).tobytes())
    mapped = np.asarray(np.memmap(tmp_path / "tokens", np.uint16, mode="r"))
    store = MemoryStore([replace(STORE.shards[0], tokens=mapped)])
    feed = PretrainingFeed(store, VOCABULARY, CONFIG)
    sent = pickle.dumps(feed.arrays)
    assert mapped.tobytes() not in sent
    arrived: ArrayFeed = pickle.loads(sent)
    buffers = np.zeros((2, feed.arrays.buffer_size), dtype=np.int64)
    for buffer, part in zip(buffers, (feed.arrays, arrived), strict=True):
        part.fill(5, buffer)
    assert (buffers[0] == buffers[1]).all()


def test_epochs_survive_their_folder(tmp_path: Path) -> None:
    feed = PretrainingFeed(STORE, VOCABULARY, CONFIG)
    epoch = feed.arrays.epoch(2)
    save_epoch(epoch, tmp_path / "epoch")
    loaded = load_epoch(tmp_path / "epoch")
    assert (loaded.plan.b_starts == epoch.plan.b_starts).all()
    assert (loaded.packing.order == epoch.packing.order).all()
