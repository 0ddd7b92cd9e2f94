"""Sentence pairs for next sentence prediction (section 3.1, task 2, and appendix A.2 of the paper).

In: documents of tokenized sentences. Out: pairs A, B, half of them really next, half with B from another document.
A run of sentences is gathered up to a target length and cut in two; when B comes from elsewhere, the sentences
that were not used go back, so that no text is lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.errors import BertkitError

Sentence = Sequence[int]
Document = Sequence[Sentence]
NUM_SPECIAL = 3  # [CLS] A [SEP] B [SEP]


@dataclass(frozen=True)
class PairConfig:
    """How long pairs are, and how often B is a stranger."""

    max_length: int = 128
    short_share: float = 0.1
    random_next_share: float = 0.5


@dataclass(frozen=True)
class SentencePair:
    """Token ids of both sides, without special tokens."""

    a: list[int]
    b: list[int]
    is_next: bool


def draw_pairs(
    documents: Sequence[Document], config: PairConfig, random: np.random.Generator
) -> Iterator[SentencePair]:
    """One pass over the documents in a random order."""
    if len(documents) < 2:
        raise BertkitError("next sentence prediction draws strangers from other documents: give at least two")
    for index in random.permutation(len(documents)):
        yield from _document_pairs(documents, int(index), config, random)


def _document_pairs(
    documents: Sequence[Document], index: int, config: PairConfig, random: np.random.Generator
) -> Iterator[SentencePair]:
    document, room = documents[index], config.max_length - NUM_SPECIAL
    start = 0
    while start < len(document):
        target = _target_length(room, config, random)
        end = _gather(document, start, target)
        is_next = len(document) > 1 and random.random() >= config.random_next_share
        if is_next and end - start == 1:
            start -= 1  # the last sentence alone: it follows the one before it
        split = int(random.integers(start + 1, max(end, start + 2)))
        a = _joined(document[start:split])
        b = _joined(document[split:end]) if is_next else _stranger(documents, index, max(1, end - split), random)
        start = end if is_next else split  # what would have been B goes back
        truncate_pair(a, b, room, random)
        if a and b:
            yield SentencePair(a, b, is_next)


def _target_length(room: int, config: PairConfig, random: np.random.Generator) -> int:
    return int(random.integers(2, room + 1)) if random.random() < config.short_share else room


def _gather(document: Document, start: int, target: int) -> int:
    """Where a run of sentences from `start`, two at least, reaches the target length, or the document ends."""
    end = start
    length = 0
    while end < len(document) and (length < target or end - start < 2):
        length += len(document[end])
        end += 1
    return end


def _stranger(documents: Sequence[Document], index: int, count: int, random: np.random.Generator) -> list[int]:
    """As many sentences of another document as the true B has, so that length does not give the answer away."""
    other = int(random.integers(len(documents) - 1))
    document = documents[other if other < index else other + 1]
    start = int(random.integers(max(1, len(document) - count + 1)))
    return _joined(document[start : start + count])


def _joined(sentences: Document) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def truncate_pair(a: list[int], b: list[int], room: int, random: np.random.Generator) -> None:
    """Drop tokens from the longer side, from its front or its end by chance, until both fit."""
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        del longer[0 if random.random() < 0.5 else -1]
