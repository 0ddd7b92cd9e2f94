"""Is held-out text held out? Sentences that stand in two token stores, by a hash of some of their tokens.

What enters: the store that is trained on and the held-out one, of one tokenizer. What leaves: how many of the held-out
sentences are in both. Short ones, which everybody writes, do not count.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.random import Words, draw_words, mix
from bertkit.corpus.store import Shard, TokenStore

LEAST_TOKENS = 8  # of a sentence that counts
NUM_PROBES = 8  # tokens of it that are compared, beside its length: to read all takes several times as long
SENTENCES_AT_ONCE = 1 << 16
MOST_SHARED = 0.05  # of held-out sentences; articles of one encyclopedia share 2 % anyway


@dataclass(frozen=True)
class Overlap:
    """Held-out sentences that are long enough to tell, and those of them that are trained on."""

    num_sentences: int
    num_shared: int

    @property
    def share(self) -> float:
        """Of the sentences compared."""
        return self.num_shared / max(1, self.num_sentences)

    @property
    def line(self) -> str:
        """For people."""
        return (
            f"{self.num_shared:,} of {self.num_sentences:,} held-out sentences of {LEAST_TOKENS} tokens and more "
            f"({self.share:.1%}) stand in the training text too, or all but a word of them"
        )


def compare_stores(train: TokenStore, held_out: TokenStore) -> Overlap:
    """Look for every held-out sentence in all of the training text."""
    values = draw_words(np.arange(held_out.vocab_size, dtype=np.uint64), 0)
    wanted = np.unique(np.concatenate([np.zeros(0, np.uint64), *_keys(held_out, values)]))
    is_shared = np.zeros(len(wanted), dtype=np.bool_)
    if len(wanted):
        for keys in _keys(train, values):
            places = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
            is_shared[places[wanted[places] == keys]] = True
    return Overlap(len(wanted), int(is_shared.sum()))


def _keys(store: TokenStore, values: Words) -> Iterator[Words]:
    """Keys of the sentences that count, block by block."""
    for shard in store.shards:
        for first in range(0, shard.num_sentences, SENTENCES_AT_ONCE):
            yield _block_keys(shard, first, values)


def _block_keys(shard: Shard, first: int, values: Words) -> Words:
    """A hash of each long sentence's length and of some tokens spread over it, its first and last among them."""
    offsets: NDArray[np.int64] = shard.sentence_offsets[first : first + SENTENCES_AT_ONCE + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    starts, lengths = starts[lengths >= LEAST_TOKENS], lengths[lengths >= LEAST_TOKENS]
    keys: Words = lengths.astype(np.uint64)
    for probe in range(NUM_PROBES):
        keys = mix(keys) ^ values[shard.tokens[starts + probe * (lengths - 1) // (NUM_PROBES - 1)]]
    return keys
