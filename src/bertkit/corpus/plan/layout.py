"""What planning knows of a corpus: where its sentences and documents begin, and nothing of their tokens.

In: the shards' offsets. Out: units (sentences; those longer than the room in several pieces), documents of units,
and stretches (documents; very long ones in several parts), all numbered through the whole store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.pairs import PairConfig
from bertkit.errors import BertkitError

Offsets = NDArray[np.int64]

# Documents advance side by side, one example a step, so a huge one would be planned all alone. A pair that never
# crosses every 4096th sentence of a book loses nothing.
LONGEST_STRETCH = 4096
# A document supplies strangers by its number of sentences, so that the style of B says nothing of the label, but
# never more than this share of the corpus, so that one huge document does not become everybody's stranger.
STRANGER_CAP = 0.01


class TokenShard(Protocol):
    """A shard of the token store, or arrays in memory in its form."""

    @property
    def tokens(self) -> NDArray[Any]:
        """All token ids."""

    @property
    def sentence_offsets(self) -> Offsets:
        """Into the tokens, one more than there are sentences."""

    @property
    def document_offsets(self) -> Offsets:
        """Into the sentences, one more than there are documents."""


@dataclass(frozen=True)
class Layout:
    """Units, documents and stretches of a store; U units, D documents, P stretches, none of them empty."""

    unit_offsets: Offsets  # [U + 1] into the tokens of all shards, laid end to end
    document_offsets: Offsets  # [D + 1] into the units
    stretch_offsets: Offsets  # [P + 1] into the units
    stretch_document: Offsets  # [P]
    stretch_shard: Offsets  # [P]
    passes: NDArray[np.float64]  # of an epoch through each shard
    weight_offsets: Offsets  # [D + 1] cumulated weights of documents as strangers

    @property
    def num_documents(self) -> int:
        """D."""
        return len(self.document_offsets) - 1


def read_layout(shards: Sequence[TokenShard], config: PairConfig, passes: Sequence[float] | None = None) -> Layout:
    """Number units and documents through all shards, of which an epoch reads each so often: once unless said."""
    often = np.ones(len(shards)) if passes is None else np.array(passes, dtype=np.float64)
    if not np.isfinite(often).all() or (often < 0.0).any() or not often.any():
        raise BertkitError("numbers in data.passes must be 0 or more, and not 0 for all text")
    sentences, documents = _joined_offsets(shards)
    units, sentence_of_unit = cut_evenly(sentences, config.room, config.piece_length)
    documents = np.unique(np.searchsorted(sentence_of_unit, documents)).astype(np.int64)  # empty ones fall out
    shard_starts = np.cumsum([0, *(len(shard.tokens) for shard in shards)])[:-1]
    shard_of_document = np.searchsorted(shard_starts, units[documents[:-1]], side="right") - 1
    is_read = often[shard_of_document] > 0.0
    if is_read.sum() < 1 + config.nsp:
        raise BertkitError(
            "next sentence prediction draws strangers from other documents: give at least two"
            if config.nsp
            else "the corpus holds no sentence; give text"
        )
    stretches, document_of_stretch = cut_evenly(documents, LONGEST_STRETCH, LONGEST_STRETCH)
    sizes = np.diff(documents) * often[shard_of_document]
    weights = np.minimum(np.maximum(np.round(sizes), is_read), max(1, int(STRANGER_CAP * sizes.sum()))).astype(np.int64)
    shards_of_stretches = shard_of_document[document_of_stretch]
    weight_offsets = np.concatenate([[0], np.cumsum(weights)])
    return Layout(units, documents, stretches, document_of_stretch, shards_of_stretches, often, weight_offsets)


def cut_evenly(offsets: Offsets, longest: int, piece: int) -> tuple[Offsets, Offsets]:
    """Spans longer than `longest` in even parts of at most `piece`, empty ones left out; and where each came from."""
    lengths = np.diff(offsets)
    num_parts = np.where(lengths > longest, -(-lengths // piece), np.minimum(lengths, 1))
    owners = np.repeat(np.arange(len(lengths)), num_parts)
    parts = np.arange(len(owners)) - np.repeat(np.cumsum(num_parts) - num_parts, num_parts)
    starts = offsets[owners] + lengths[owners] * parts // num_parts[owners]
    return np.append(starts, offsets[-1]), owners


def _joined_offsets(shards: Sequence[TokenShard]) -> tuple[Offsets, Offsets]:
    """Sentence offsets into all tokens, and document offsets into all sentences."""
    sentences, documents = [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
    num_tokens = num_sentences = 0
    for shard in shards:
        sentences.append(np.asarray(shard.sentence_offsets[1:]) + num_tokens)
        documents.append(np.asarray(shard.document_offsets[1:]) + num_sentences)
        num_tokens, num_sentences = num_tokens + len(shard.tokens), num_sentences + len(sentences[-1])
    return np.concatenate(sentences), np.concatenate(documents)
