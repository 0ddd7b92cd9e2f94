"""Sentence pairs for next sentence prediction (section 3.1, task 2, and appendix A.2 of the paper).

In: documents of tokenized sentences. Out: pairs A, B, half of them really next, half with B from another document.
A run of sentences is gathered up to a target length and cut in two; when B comes from elsewhere, the sentences
that were not used go back, so that no text is lost. corpus.plan draws them, here are the rules and the small scale.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.random import draw_below
from bertkit.errors import BertkitError

Sentence = Sequence[int]
Document = Sequence[Sentence]
Integers = NDArray[np.int64]
NUM_SPECIAL = 3  # [CLS] A [SEP] B [SEP]
Negatives = Literal["strangers", "swapped"]
NEGATIVES: tuple[Negatives, ...] = ("strangers", "swapped")


@dataclass(frozen=True)
class PairConfig:
    """How long examples are, and how often B is a stranger; without `nsp`, whole sentences in one segment.

    With negatives = "swapped" the question is the order of the two (Lan et al. 2020): where B is not next, A is.
    """

    max_length: int = 128
    short_share: float = 0.1
    random_next_share: float = 0.5
    nsp: bool = True
    negatives: Negatives = "strangers"

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise BertkitError(f"a length of {self.max_length} tokens is too short for pairs; give 8 or more")
        if self.negatives not in NEGATIVES:
            raise BertkitError(f"unknown negatives {self.negatives!r}; choose one of {', '.join(NEGATIVES)}")
        for name in ("short_share", "random_next_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise BertkitError(f"{name} is {getattr(self, name)}; it must be from 0 to 1")

    @property
    def num_special(self) -> int:
        """Special tokens of an example: [CLS] A [SEP] B [SEP], or [CLS] A [SEP]."""
        return NUM_SPECIAL if self.nsp else NUM_SPECIAL - 1

    @property
    def room(self) -> int:
        """Tokens of text in a full example."""
        return self.max_length - self.num_special

    @property
    def piece_length(self) -> int:
        """A sentence longer than the room is cut into pieces of this length: two of them make a full pair."""
        return self.room // 2 if self.nsp else self.room


@dataclass(frozen=True)
class SentencePair:
    """Token ids of both sides, without special tokens."""

    a: list[int]
    b: list[int]
    is_next: bool


@dataclass(frozen=True)
class Side:
    """One side of many pairs: spans of whole sentences, and how long the first and last sentence of each is."""

    starts: Integers
    lengths: Integers
    firsts: Integers
    lasts: Integers

    @property
    def slack(self) -> Integers:
        """How many tokens may go so that something of every sentence stays."""
        return np.where(self.firsts < self.lengths, self.firsts + self.lasts - 2, self.lengths - 1)


def truncate_pair(a: Side, b: Side, room: int, uniform: NDArray[np.float64]) -> tuple[Integers, ...]:
    """Cut the longer side of each pair, at its front and its end by chance, until both fit: starts and lengths.

    No sentence of A, and none of a B that is next, goes entirely: a run is over as soon as it reaches its target, so
    what is too much is less than its last sentence.
    """
    length_b = np.minimum(b.lengths, np.maximum(room - a.lengths, room // 2))
    length_a = np.maximum(np.minimum(a.lengths, room - length_b), a.lengths - a.slack)
    length_b = np.minimum(b.lengths, room - length_a)
    front_a = _front_cut(a, a.lengths - length_a, uniform[0])
    front_b = _front_cut(b, b.lengths - length_b, uniform[1])
    return a.starts + front_a, length_a, b.starts + front_b, length_b


def _front_cut(side: Side, cut: Integers, uniform: NDArray[np.float64]) -> Integers:
    """How many of `cut` tokens go at the front: any number that leaves something of the first and last sentence."""
    is_single = side.firsts == side.lengths
    most = np.where(is_single, cut, np.minimum(cut, side.firsts - 1))
    least = np.where(is_single, 0, np.clip(cut - (side.lasts - 1), 0, most))
    return least + draw_below(uniform, most - least + 1)


def draw_pairs(
    documents: Sequence[Document], config: PairConfig, random: np.random.Generator
) -> Iterator[SentencePair]:
    """One pass over documents in memory, in a random order, by the plan that large corpora are trained with."""
    from bertkit.corpus.plan.epoch import plan_epoch  # the plan is built on this module
    from bertkit.corpus.plan.layout import read_layout

    shard = MemoryShard.of(documents)
    plan = plan_epoch(read_layout([shard], config), config, seed=int(random.integers(1 << 62)), epoch=0)
    tokens = shard.tokens.tolist()
    columns = (plan.a_starts, plan.a_lengths, plan.b_starts, plan.b_lengths, plan.is_next)
    rows = np.stack([column.astype(np.int64) for column in columns], axis=1)
    for a, a_length, b, b_length, is_next in rows[random.permutation(len(plan))].tolist():
        yield SentencePair(tokens[a : a + a_length], tokens[b : b + b_length], bool(is_next))


@dataclass(frozen=True)
class MemoryShard:
    """Documents in memory, in the form of a shard of the token store."""

    tokens: Integers
    sentence_offsets: Integers
    document_offsets: Integers

    @classmethod
    def of(cls, documents: Sequence[Document]) -> "MemoryShard":
        """Lay the sentences of all documents end to end."""
        sentences = [sentence for document in documents for sentence in document]
        return cls(
            tokens=np.array([token for sentence in sentences for token in sentence], dtype=np.int64),
            sentence_offsets=np.cumsum([0, *map(len, sentences)], dtype=np.int64),
            document_offsets=np.cumsum([0, *map(len, documents)], dtype=np.int64),
        )
