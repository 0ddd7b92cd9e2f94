"""Micro-batches for measuring: real ones cut to fewer tokens, or random ones where there is no store yet."""

import torch

from bertkit.errors import BertkitError
from bertkit.model.packed import PackedBatch, pack
from bertkit.tasks.pretraining import IGNORED, PretrainingBatch
from bertkit.training.feeds import Feed, StepCounts, count_batch
from bertkit.training.plan import Stage

FIRST_ID = 5  # above the special tokens
NUM_RANDOM = 4  # different random micro-batches


def shorten(batch: PretrainingBatch, max_tokens: int) -> PretrainingBatch:
    """The first whole sequences that fit, at least one; slots that only fill a capacity are left out."""
    inputs = batch.inputs
    used = batch.masked_token_ids != IGNORED
    positions, targets = batch.masked_positions[used], batch.masked_token_ids[used]
    owner = torch.bucketize(positions.int(), inputs.cu_seqlens[1:], right=True)
    bounds, has_target = inputs.cu_seqlens.tolist(), set(owner.tolist())
    chosen: list[int] = []
    size = 0
    for number in sorted(has_target):
        length = bounds[number + 1] - bounds[number]
        if chosen and size + length > max_tokens:
            break
        chosen.append(number)
        size += length
    if not chosen:
        raise BertkitError("a micro-batch has no masked token; raise the masking rate or the length of examples")
    return _take(batch, chosen, positions, targets, owner)


def _take(
    batch: PretrainingBatch, chosen: list[int], positions: torch.Tensor, targets: torch.Tensor, owner: torch.Tensor
) -> PretrainingBatch:
    """These sequences alone, with their targets moved to where they lie now."""
    inputs, picked = batch.inputs, torch.tensor(chosen)
    starts, ends = inputs.cu_seqlens[picked], inputs.cu_seqlens[picked + 1]
    rows = torch.cat([torch.arange(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)])
    cu_seqlens = torch.cat([starts.new_zeros(1), (ends - starts).cumsum(0).int()])
    shift = torch.zeros(len(inputs), dtype=torch.int64)
    shift[picked] = (cu_seqlens[:-1] - starts).long()
    kept = torch.isin(owner, picked)
    return PretrainingBatch(
        inputs=PackedBatch(
            inputs.token_ids[rows],
            inputs.segment_ids[rows],
            inputs.position_ids[rows],
            cu_seqlens,
            inputs.max_seqlen,
            inputs.reach,
        ),
        masked_positions=positions[kept] + shift[owner[kept]],
        masked_token_ids=targets[kept],
        next_labels=batch.next_labels[picked],
    )


class ShortFeed:
    """Another feed's micro-batches, cut."""

    def __init__(self, feed: Feed, max_tokens: int) -> None:
        self.feed, self.max_tokens = feed, max_tokens

    def micro_batch(self, index: int) -> PretrainingBatch:
        """The micro-batch of this number, shortened."""
        return shorten(self.feed.micro_batch(index), self.max_tokens)

    def counts(self, index: int) -> StepCounts:
        """Counted from the batch itself."""
        return count_batch(self.micro_batch(index))


class RandomFeed:
    """Random tokens in a stage's shape, where there is no text yet."""

    def __init__(self, stage: Stage, vocab_size: int, *, next_sentence: bool = True) -> None:
        self.stage, self.vocab_size, self.next_sentence = stage, vocab_size, next_sentence

    def micro_batch(self, index: int) -> PretrainingBatch:
        """One of a few."""
        draw = torch.Generator().manual_seed(index % NUM_RANDOM)
        length, num = self.stage.max_length, self.stage.tokens_per_batch // self.stage.max_length
        low = min(FIRST_ID, self.vocab_size - 1)
        ids = torch.randint(low, self.vocab_size, (num, length), generator=draw)
        inputs = pack(ids.tolist())
        positions = torch.arange(0, inputs.num_tokens, max(1, round(1 / self.stage.masking.rate)))
        labels = torch.randint(0, 2, (num,), generator=draw)
        labels = labels if self.next_sentence else torch.full_like(labels, IGNORED)
        return PretrainingBatch(inputs, positions, inputs.token_ids[positions], labels)

    def counts(self, index: int) -> StepCounts:
        """Known from the shape."""
        length, num = self.stage.max_length, self.stage.tokens_per_batch // self.stage.max_length
        masked = len(range(0, num * length, max(1, round(1 / self.stage.masking.rate))))
        return StepCounts(masked, num if self.next_sentence else 0, num * length)
