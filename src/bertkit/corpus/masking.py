"""Masked language modelling's task (section 3.1, task 1 of the paper), for a whole batch of sequences at once.

In: token ids laid end to end, which of them may be masked, a key for each sequence. Out: the ids the model sees, the
chosen positions, what stood there, and how each was replaced: 80 % by [MASK], 10 % by a random token, 10 % left as
they were; whole words together, if asked. T tokens of N sequences, M of them chosen.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.random import Words, draw_below, draw_uniform, draw_words
from bertkit.errors import BertkitError

Integers = NDArray[np.int64]
_PER_TOKEN = np.uint64(4 * 0x9E3779B97F4A7C15 % 2**64)  # four random words a token: to choose, to replace, by what


class Replacement(IntEnum):
    """What the model sees at a chosen position."""

    MASK = 0
    RANDOM = 1
    SAME = 2


@dataclass(frozen=True)
class MaskingConfig:
    """How many tokens are chosen, and in which shares they are replaced; the rest of the shares stays the same."""

    rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    whole_word: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise BertkitError(f"masking rate is {self.rate}; it must be above 0 and at most 1")
        if not (self.mask_share >= 0.0 and self.random_share >= 0.0 and self.mask_share + self.random_share <= 1.0):
            raise BertkitError(f"masking shares {self.mask_share} and {self.random_share} must lie in 0 to 1 together")

    def num_masked(self, num_maskable: Integers) -> Integers:
        """max(1, round(rate x maskable)) for each sequence, and none where there is nothing to mask."""
        counts: Integers = np.minimum(num_maskable, np.maximum(1, np.rint(self.rate * num_maskable).astype(np.int64)))
        return counts


@dataclass(frozen=True)
class MaskedSequence:
    """One sequence, or several laid end to end, with the MLM task."""

    token_ids: Integers  # [T] what the model sees
    positions: Integers  # [M] the chosen places, ascending
    targets: Integers  # [M] what stood there
    replacements: Integers  # [M] a Replacement each
    draws: NDArray[np.float64]  # [M] the uniform number that decided the replacement

    def keep(self, count: int) -> "MaskedSequence":
        """At most so many chosen places, the first; at the others stands what stood there."""
        if len(self.positions) <= count:
            return self
        token_ids = self.token_ids.copy()
        token_ids[self.positions[count:]] = self.targets[count:]
        kept = self.positions[:count], self.targets[:count], self.replacements[:count], self.draws[:count]
        return MaskedSequence(token_ids, *kept)


def generator(*key: int) -> np.random.Generator:
    """A random stream that depends on its key alone, such as (seed, epoch)."""
    # The length goes in too: numpy's seed sequence takes (1, 2) and (1, 2, 0) for the same.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((len(key), *key))))


def mask_tokens(
    token_ids: Integers,
    maskable: NDArray[np.bool_],
    *,
    mask_id: int,
    ordinary_ids: Integers,
    random: np.random.Generator,
    config: MaskingConfig | None = None,
    continues: NDArray[np.bool_] | None = None,
) -> MaskedSequence:
    """Mask one sequence, with a key drawn from `random`."""
    return mask_batch(
        token_ids,
        maskable,
        np.array([0, len(token_ids)]),
        random.integers(1 << 63, size=1, dtype=np.uint64),
        mask_id=mask_id,
        ordinary_ids=ordinary_ids,
        config=config or MaskingConfig(),
        continues=continues,
    )


def mask_batch(
    token_ids: Integers,
    maskable: NDArray[np.bool_],
    offsets: Integers,
    keys: Words,
    *,
    mask_id: int,
    ordinary_ids: Integers,
    config: MaskingConfig,
    continues: NDArray[np.bool_] | None = None,
) -> MaskedSequence:
    """Choose max(1, round(rate x maskable)) places of each sequence, each a function of its key and place alone.

    Sequence n is offsets[n] : offsets[n + 1]. Random tokens come from `ordinary_ids`; `continues` tells which tokens
    go on with the word before them, which whole-word masking needs.
    """
    candidates = np.flatnonzero(maskable)
    lengths = np.diff(offsets)
    sequences = np.repeat(np.arange(len(lengths)), lengths)[candidates]
    bases = keys[sequences] + (candidates - offsets[sequences]).astype(np.uint64) * _PER_TOKEN
    counts = config.num_masked(np.bincount(sequences, minlength=len(lengths)))
    if config.whole_word:
        chosen, deciders = _choose_words(candidates, sequences, _given(continues)[candidates], bases, counts)
    else:
        chosen = deciders = _choose_tokens(sequences, bases, counts)
    draws = draw_uniform(bases[deciders], 1)
    return _replace(token_ids, candidates[chosen], draws, draw_uniform(bases[chosen], 2), mask_id, ordinary_ids, config)


def _given(continues: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    if continues is None:
        raise BertkitError("whole-word masking needs to know which tokens continue a word; give `continues`")
    return continues


def _choose_tokens(sequences: Integers, bases: Words, counts: Integers) -> Integers:
    """`count` candidates of each sequence, ascending."""
    order = _shuffle(sequences, draw_words(bases, 0), len(counts))
    sizes = np.bincount(sequences, minlength=len(counts))
    ranks = np.arange(len(sequences)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(order[ranks < np.repeat(counts, sizes)])


def _shuffle(sequences: Integers, words: Words, num_sequences: int) -> Integers:
    """Indices sorted by sequence, and within each by their random words."""
    # One sort of integers that hold the sequence above, the random bits in the middle and the index below.
    index_bits, sequence_bits = np.uint64(len(sequences).bit_length()), np.uint64(num_sequences.bit_length())
    ranked = (sequences.astype(np.uint64) << (np.uint64(64) - sequence_bits)) | (words >> sequence_bits)
    ranked = (ranked >> index_bits << index_bits) | np.arange(len(sequences), dtype=np.uint64)
    ranked.sort()
    return (ranked & ((np.uint64(1) << index_bits) - np.uint64(1))).astype(np.int64)


def _choose_words(
    candidates: Integers, sequences: Integers, continues: NDArray[np.bool_], bases: Words, counts: Integers
) -> tuple[Integers, Integers]:
    """Whole words, in a random order, each that still fits: the chosen candidates, and the first one of each's word."""
    is_inside = continues[1:] & (np.diff(candidates) == 1) & (np.diff(sequences) == 0)
    word_of = np.cumsum(np.concatenate([[True], ~is_inside])[: len(candidates)]) - 1
    starts = np.flatnonzero(np.diff(word_of, prepend=-1))
    lengths, word_sequences = np.bincount(word_of), sequences[starts]
    order = _shuffle(word_sequences, draw_words(bases[starts], 0), len(counts))
    is_taken = _take_fitting(order, lengths, word_sequences, counts)
    chosen = np.flatnonzero(is_taken[word_of])
    return chosen, starts[word_of[chosen]]


def _take_fitting(order: Integers, lengths: Integers, sequences: Integers, counts: Integers) -> NDArray[np.bool_]:
    """Which words are taken when each sequence goes through its words in this order and skips those too long."""
    is_taken, remaining, pool = np.zeros(len(order), dtype=np.bool_), counts.copy(), order
    while len(pool := pool[lengths[pool] <= remaining[sequences[pool]]]):
        # Up to the first that does not fit, all at once; that one never will, so the next round leaves it out.
        total = np.cumsum(lengths[pool])
        firsts = np.searchsorted(sequences[pool], sequences[pool])
        fits = total - (total - lengths[pool])[firsts] <= remaining[sequences[pool]]
        is_taken[pool[fits]] = True
        np.subtract.at(remaining, sequences[pool[fits]], lengths[pool[fits]])
        pool = pool[~fits]
    left_out = order[((counts > 0) & (remaining == counts))[sequences[order]]]
    if len(left_out):  # every word is longer than the count: the shortest, so that one is masked at least
        left_out = left_out[np.lexsort((lengths[left_out], sequences[left_out]))]
        is_taken[left_out[np.diff(sequences[left_out], prepend=-1) > 0]] = True
    return is_taken


def _replace(
    token_ids: Integers,
    positions: Integers,
    draws: NDArray[np.float64],
    picks: NDArray[np.float64],
    mask_id: int,
    ordinary_ids: Integers,
    config: MaskingConfig,
) -> MaskedSequence:
    thresholds = (config.mask_share, config.mask_share + config.random_share)
    replacements = np.searchsorted(thresholds, draws, side="right")
    targets = token_ids[positions]
    random_ids = ordinary_ids[draw_below(picks, len(ordinary_ids))]
    seen = token_ids.copy()
    seen[positions] = np.select(
        [replacements == Replacement.MASK, replacements == Replacement.RANDOM], [mask_id, random_ids], targets
    )
    return MaskedSequence(seen, positions, targets, replacements, draws)
