"""Micro-batches of pre-training as numpy arrays, each a pure function of (seed, index).

In: the shards of a token store, what masking must know of the vocabulary, a FeedConfig. Out: arrays of fixed
capacities in one buffer. Masks are keyed by (seed, epoch, example, position). No torch here: the loader's workers
start without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.masking import MaskedSequence, MaskingConfig, mask_batch
from bertkit.corpus.packing import (
    IGNORED,
    Capacities,
    check_capacities,
    choose_capacities,
    epoch_size,
    fit_packing,
    stretch_packing,
)
from bertkit.corpus.plan.layout import Layout, TokenShard, read_layout
from bertkit.corpus.random import draw_below, draw_uniform, make_keys
from bertkit.errors import BertkitError
from bertkit.tasks.feed.epochs import Epoch, FeedConfig, build_epoch
from bertkit.tasks.feed.next_tokens import EVERY_TOKEN, next_tokens
from bertkit.tasks.feed.sources import FeedVocabulary, MappedShard

Integers = NDArray[np.int64]
MASK_KEY, EVALUATION_KEY = 3, 4  # keep the random numbers of masks apart, also those of evaluation from training's
SHIFT_KEY = 5


@dataclass(frozen=True)
class Counts:
    """How much of a micro-batch is real, as host integers."""

    num_masked: int
    num_pairs: int
    num_tokens: int


@dataclass(frozen=True)
class BatchArrays:
    """A micro-batch as views of one buffer of int64."""

    token_ids: Integers  # [T]
    segment_ids: Integers  # [T]
    position_ids: Integers  # [T]
    masked_positions: Integers  # [M] 0 where unused
    masked_token_ids: Integers  # [M] IGNORED where unused
    next_labels: Integers  # [N] 0 next, 1 not, IGNORED where unused
    cu_seqlens: Integers  # [N + 1]

    @staticmethod
    def sizes(capacities: Capacities) -> list[int]:
        """Lengths of the views, in their order."""
        T, N, M = capacities.num_tokens, capacities.num_sequences, capacities.num_masked
        return [T, T, T, M, M, N, N + 1]

    @classmethod
    def of(cls, buffer: Integers, capacities: Capacities) -> BatchArrays:
        """Cut a buffer into its views."""
        return cls(*np.split(buffer, np.cumsum(cls.sizes(capacities))[:-1]))


class ArrayFeed:
    """Fills buffers with micro-batches; epochs are planned when needed, and the two latest kept."""

    def __init__(
        self, shards: Sequence[TokenShard], vocabulary: FeedVocabulary, config: FeedConfig, *, evaluation: bool = False
    ) -> None:
        # Held-out text: the paper's own masking whatever training's is, one epoch, and masks of its own.
        masking = MaskingConfig() if evaluation else config.masking
        if evaluation:
            config = replace(config, shifted_share=0.0, passes=None)
        self.config = replace(config, masking=EVERY_TOKEN if config.objective == "ltr" else masking)
        self.vocabulary, self.evaluation = vocabulary, evaluation
        self._shards = list(shards)
        self._prepare()
        first = build_epoch(self.layout, self.config, 0, None, None)
        self.epoch_size = len(first.packing) if evaluation else epoch_size(first.packing)
        self.capacities = self._choose_capacities(first)
        stretched = stretch_packing(first.packing, self.epoch_size)
        fitted = fit_packing(stretched, self.config.masking, self.capacities, self.config.pairs.num_special)
        self._epochs[0] = Epoch(first.plan, fitted)

    def _prepare(self) -> None:
        self._epochs: dict[int, Epoch] = {}
        self._lock = RLock()
        self.make_epoch: Callable[[int], Epoch] = self.build_epoch
        self._tokens = [np.asarray(shard.tokens) for shard in self._shards]
        self._token_offsets = np.cumsum([0, *map(len, self._tokens)])
        self._frame = [np.array([token], dtype=self._tokens[0].dtype) for token in self._frame_ids]

    @property
    def _frame_ids(self) -> tuple[int, int]:
        return self.vocabulary.cls_id, self.vocabulary.sep_id

    def _choose_capacities(self, first: Epoch) -> Capacities:
        config, num_special = self.config, self.config.pairs.num_special
        chosen = choose_capacities(
            first.packing,
            config.masking,
            num_tokens=config.tokens_per_batch,
            max_seqlen=config.max_length,
            num_special=num_special,
        )
        given = {"num_sequences": config.num_sequences, "num_masked": config.num_masked}
        capacities = replace(chosen, **{name: value for name, value in given.items() if value is not None})
        check_capacities(first.packing, config.masking, capacities, num_special)
        return capacities

    def __getstate__(self) -> dict[str, Any]:
        """For worker processes: files are mapped again there, and plans come by another way."""
        state = {
            name: getattr(self, name) for name in ("config", "vocabulary", "evaluation", "epoch_size", "capacities")
        }
        return {**state, "_shards": [MappedShard.of(shard) for shard in self._shards]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    @cached_property
    def layout(self) -> Layout:
        """Where sentences and documents lie."""
        return read_layout(self._shards, self.config.pairs, self.config.passes)

    @property
    def buffer_size(self) -> int:
        """Integers of a micro-batch."""
        return sum(BatchArrays.sizes(self.capacities))

    def locate(self, index: int) -> tuple[int, int]:
        """Epoch, and number within it, of a micro-batch."""
        epoch, number = divmod(index, self.epoch_size)
        if index < 0 or (self.evaluation and epoch):
            raise BertkitError(f"there is no micro-batch {index}; the feed has {self.epoch_size} an epoch, from 0")
        return epoch, number

    def build_epoch(self, epoch: int) -> Epoch:
        """Plan and pack an epoch here."""
        return build_epoch(self.layout, self.config, epoch, self.epoch_size, self.capacities)

    def epoch(self, number: int) -> Epoch:
        """An epoch's plan and packing."""
        with self._lock:
            if number not in self._epochs:
                self._epochs[number] = self.make_epoch(number)
                for old in sorted(self._epochs)[:-2]:
                    if old != number:
                        del self._epochs[old]
            return self._epochs[number]

    @contextmanager
    def epochs_from(self, source: Callable[[int], Epoch]) -> Iterator[dict[int, Epoch]]:
        """Take epochs from elsewhere for a while; gives those that are known already."""
        before, self.make_epoch = self.make_epoch, source
        try:
            yield dict(self._epochs)
        finally:
            self.make_epoch = before

    def examples(self, index: int) -> tuple[int, Epoch, Integers]:
        """The epoch of a micro-batch and which of the plan's examples it holds."""
        number, local = self.locate(index)
        epoch = self.epoch(number)
        return number, epoch, epoch.packing[local % len(epoch.packing)]  # fewer only if there are hardly any examples

    def fill(self, index: int, buffer: Integers) -> Counts:
        """Write a micro-batch into a buffer; its counts are known by the way."""
        number, epoch, rows = self.examples(index)
        batch = BatchArrays.of(buffer, self.capacities)
        lengths = epoch.packing.lengths[rows].astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        num_tokens = int(offsets[-1])
        masked = self._mask(self._gather(epoch, rows), offsets, number, rows)
        batch.token_ids[:num_tokens] = masked.token_ids
        batch.token_ids[num_tokens:] = self.vocabulary.pad_id
        self._write_places(batch, epoch, rows, lengths, offsets)
        if self.config.shifted_share:
            batch.position_ids[:num_tokens] += np.repeat(self._shifts(number, rows, lengths), lengths)
        num_masked = len(masked.positions)
        batch.masked_positions[:num_masked], batch.masked_positions[num_masked:] = masked.positions, 0
        batch.masked_token_ids[:num_masked], batch.masked_token_ids[num_masked:] = masked.targets, IGNORED
        return Counts(num_masked, len(rows) if self.config.nsp else 0, num_tokens)

    def _write_places(
        self, batch: BatchArrays, epoch: Epoch, rows: Integers, lengths: Integers, offsets: Integers
    ) -> None:
        """Segments, positions, bounds and labels: unused slots first, then the sequences, then dummies."""
        num_tokens, longest = int(offsets[-1]), self.capacities.max_seqlen
        batch.segment_ids[:] = 0
        if self.config.nsp:
            sides = np.stack([epoch.plan.a_lengths[rows] + 2, epoch.plan.b_lengths[rows] + 1], axis=1).ravel()
            batch.segment_ids[:num_tokens] = np.repeat(np.tile([0, 1], len(rows)), sides)
        dummies = np.append(np.arange(num_tokens, len(batch.token_ids), longest), len(batch.token_ids))[1:]
        # A slot without tokens in front begins at row 0, which exists; behind, its [CLS] row would lie outside.
        bounds = np.concatenate([offsets, dummies])
        batch.cu_seqlens[:] = 0
        batch.cu_seqlens[-len(bounds) :] = bounds
        all_lengths = np.diff(bounds)
        batch.position_ids[:] = np.arange(bounds[-1]) - np.repeat(bounds[:-1], all_lengths)
        batch.next_labels[:] = IGNORED
        if self.config.nsp:
            first = len(batch.next_labels) - len(all_lengths)
            batch.next_labels[first : first + len(rows)] = ~epoch.plan.is_next[rows]

    def _shifts(self, epoch: int, rows: Integers, lengths: Integers) -> Integers:
        """Where each row begins: most at position 0, some at any from which they do not pass the last one."""
        share = self.config.shifted_share
        uniform = draw_uniform(make_keys(SHIFT_KEY, self.config.seed, epoch, rows), 0)
        return np.where(uniform < share, draw_below(uniform / share, self.config.reach - lengths + 1), 0)

    def _gather(self, epoch: Epoch, rows: Integers) -> Integers:
        """The tokens of these examples with their special tokens, laid end to end."""
        plan, (cls, sep) = epoch.plan, self._frame
        parts: list[NDArray[Any]] = []
        a_spans, b_spans = self._spans(plan.a_starts[rows]), self._spans(plan.b_starts[rows])
        lengths = plan.a_lengths[rows].tolist(), plan.b_lengths[rows].tolist()
        for (a_tokens, a), (b_tokens, b), a_length, b_length in zip(a_spans, b_spans, *lengths, strict=True):
            parts += cls, a_tokens[a : a + a_length], sep
            if b_length:
                parts += b_tokens[b : b + b_length], sep
        return np.concatenate(parts).astype(np.int64)

    def _spans(self, starts: Integers) -> list[tuple[NDArray[Any], int]]:
        """The shard's tokens and the place among them of each start."""
        shards = np.minimum(np.searchsorted(self._token_offsets, starts, side="right") - 1, len(self._tokens) - 1)
        places = starts - self._token_offsets[shards]
        return [(self._tokens[shard], place) for shard, place in zip(shards.tolist(), places.tolist(), strict=True)]

    def _mask(self, token_ids: Integers, offsets: Integers, epoch: int, rows: Integers) -> MaskedSequence:
        vocabulary, config = self.vocabulary, self.config
        maskable = ~vocabulary.is_special[token_ids]
        if config.objective == "ltr":
            return next_tokens(token_ids, maskable)
        masked = mask_batch(
            token_ids,
            maskable,
            offsets,
            make_keys(EVALUATION_KEY if self.evaluation else MASK_KEY, config.seed, epoch, rows),
            mask_id=vocabulary.mask_id,
            ordinary_ids=vocabulary.ordinary_ids,
            config=config.masking,
            continues=vocabulary.continues[token_ids] if config.masking.whole_word else None,
        )
        return masked.keep(self.capacities.num_masked)  # whole words can be more tokens than were asked for

    def counts(self, index: int) -> Counts:
        """The counts of a micro-batch; only whole words have to be drawn for it."""
        number, epoch, rows = self.examples(index)
        offsets = np.concatenate([[0], np.cumsum(epoch.packing.lengths[rows].astype(np.int64))])
        token_ids = self._gather(epoch, rows)
        if self.config.masking.whole_word:
            num_masked = len(self._mask(token_ids, offsets, number, rows).positions)
        else:
            maskable = np.add.reduceat(~self.vocabulary.is_special[token_ids], offsets[:-1], dtype=np.int64)
            num_masked = int(self.config.masking.num_masked(maskable).sum())
        return Counts(num_masked, len(rows) if self.config.nsp else 0, int(offsets[-1]))
