"""The feed of pre-training: micro-batch number `index` of a token store, a pure function of (seed, index).

In: a token store, a tokenizer, a FeedConfig. Out: PretrainingBatches of fixed capacities. Rank r of W processes takes
the numbers r, r + W, ..., so the global order is the same on any number of them, and a run resumes at any number.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bertkit.corpus.packing import Capacities
from bertkit.corpus.plan.layout import TokenShard
from bertkit.model.packed import PackedBatch
from bertkit.tasks.feed.arrays import ArrayFeed, BatchArrays, Counts
from bertkit.tasks.feed.epochs import FeedConfig
from bertkit.tasks.feed.sources import FeedVocabulary
from bertkit.tasks.pretraining import PretrainingBatch
from bertkit.tokenizer import Tokenizer


class ShardedStore(Protocol):
    """A token store, or anything with its shards."""

    @property
    def shards(self) -> Sequence[TokenShard]:
        """Where the tokens are."""


class PretrainingFeed:
    """Micro-batches by number, in an order that does not end; safe to ask from several threads."""

    def __init__(
        self,
        store: ShardedStore,
        vocabulary: Tokenizer | FeedVocabulary,
        config: FeedConfig | None = None,
        *,
        evaluation: bool = False,
    ) -> None:
        vocabulary = vocabulary if isinstance(vocabulary, FeedVocabulary) else FeedVocabulary.of(vocabulary)
        self.arrays = ArrayFeed(store.shards, vocabulary, config or FeedConfig(), evaluation=evaluation)

    @property
    def capacities(self) -> Capacities:
        """The one shape of all micro-batches."""
        return self.arrays.capacities

    @property
    def epoch_size(self) -> int:
        """Micro-batches of an epoch, the same for all; a held-out feed has this many in all."""
        return self.arrays.epoch_size

    def micro_batch(self, index: int) -> PretrainingBatch:
        """The micro-batch of this number."""
        buffer = np.empty(self.arrays.buffer_size, dtype=np.int64)
        self.arrays.fill(index, buffer)
        return self.wrap(torch.from_numpy(buffer))

    def counts(self, index: int) -> Counts:
        """What of it is real, without building it."""
        return self.arrays.counts(index)

    def wrap(self, buffer: Tensor) -> PretrainingBatch:
        """A filled buffer as a batch of its views."""
        tokens, segments, positions, *targets, cu_seqlens = buffer.split(BatchArrays.sizes(self.capacities))
        longest, reach = self.capacities.max_seqlen, self.arrays.config.reach
        inputs = PackedBatch(tokens, segments, positions, cu_seqlens.int(), longest, reach)
        return PretrainingBatch(inputs, *targets)


def held_out_feed(
    store: ShardedStore, vocabulary: Tokenizer | FeedVocabulary, config: FeedConfig, seed: int = 0
) -> PretrainingFeed:
    """Held-out text once: 15 % and 80/10/10 whatever training does, keyed by (evaluation seed, example)."""
    return PretrainingFeed(store, vocabulary, replace(config, seed=seed), evaluation=True)
