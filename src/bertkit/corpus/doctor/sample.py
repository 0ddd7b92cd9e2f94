"""What the doctor looks at: documents from text files or from a token store, no more than a budget of characters.

What leaves: the same documents in one form (sentences as text and as ids), and how much there is in all. Files are read
from their beginnings, each its share; a store is looked at in stretches spread over all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.prepare.blocks import PrepareOptions
from bertkit.corpus.prepare.estimate import text_factor
from bertkit.corpus.store import Shard, TokenStore
from bertkit.errors import BertkitError
from bertkit.text.cleaning import clean_paragraph
from bertkit.text.counted import counted, in_millions
from bertkit.text.documents import Document, read_documents
from bertkit.text.files import find_files
from bertkit.text.reports import ReadReport
from bertkit.text.sentences import split_sentences
from bertkit.tokenizer.wordpiece import Tokenizer

MOST_FILES = 200
FILES_WEIGHED = 20
NUM_STRETCHES = 200
LEAST_STRETCH = 1000  # tokens
CHARACTERS_A_TOKEN = 4.5  # about, to turn a budget of characters into one of tokens


@dataclass(frozen=True)
class LookedAt:
    """One document."""

    paragraphs: list[list[str]]  # sentences; a store's document is one paragraph, for it keeps none
    ids: list[NDArray[Any]]  # of every sentence, in order


class Source(Protocol):
    """Something to look at."""

    tokenizer: Tokenizer
    is_text: bool

    def documents(self) -> Iterator[LookedAt]:
        """Those that fit the budget."""

    def extent(self, num_characters: int) -> tuple[float, str]:
        """Which share of all these characters are, and how they were chosen."""


@dataclass
class TextSource:
    """Files as `bertkit prepare` would read them; what cannot be read is named in the report."""

    inputs: Sequence[str | Path]
    tokenizer: Tokenizer
    budget: int  # characters
    options: PrepareOptions = field(default_factory=PrepareOptions)
    report: ReadReport = field(default_factory=ReadReport)
    is_whole: bool = field(default=False, init=False)  # whether `documents` gave all there is
    bytes_a_character: float = field(default=1.0, init=False)  # of what it gave: 3 in Chinese
    is_text = True

    @cached_property
    def files(self) -> list[Path]:
        """All that the inputs mean."""
        return find_files(self.inputs)

    @cached_property
    def chosen(self) -> list[Path]:
        """Those that are looked into."""
        return self.files[:: -(-len(self.files) // MOST_FILES)]

    @cached_property
    def num_bytes(self) -> int:
        """Of all text, about: how much packed files hold is guessed from the beginnings of a few."""
        few = self.files[:: -(-len(self.files) // FILES_WEIGHED)]
        weights = [path.stat().st_size for path in few]
        text = sum(weight * text_factor(path) for weight, path in zip(weights, few, strict=True))
        return round(sum(path.stat().st_size for path in self.files) * text / max(1, sum(weights)))

    def documents(self) -> Iterator[LookedAt]:
        """The beginning of each file; what one does not need is left to those after it."""
        left, is_whole = self.budget, len(self.chosen) == len(self.files)
        num_characters = num_bytes = 0
        for number, path in enumerate(self.chosen):
            share = left // (len(self.chosen) - number)
            for document in read_documents(path, self.options.reading(), self.report):
                if share <= 0:
                    is_whole = False
                    break
                size = sum(map(len, document.paragraphs))
                num_characters += size
                num_bytes += sum(len(text.encode()) for text in document.paragraphs)
                yield from self._looked_at(document)
                share, left = share - size, left - size
        self.is_whole, self.bytes_a_character = is_whole, num_bytes / max(1, num_characters)

    def _looked_at(self, document: Document) -> Iterator[LookedAt]:
        cleaned = [text for text in map(clean_paragraph, document.paragraphs) if text]
        by_line = self.options.sentences == "line"
        paragraphs = [[text] if by_line else split_sentences(text) for text in cleaned]
        sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
        ids = self.tokenizer.encode_ids(sentences, special=False)  # as `prepare` does
        if any(ids):  # some characters, such as those for private use, are no tokens
            yield LookedAt(paragraphs, [np.array(row, dtype=np.int64) for row in ids])

    def extent(self, num_characters: int) -> tuple[float, str]:
        """Files are read from their beginnings."""
        total = self.num_bytes / max(1.0, self.bytes_a_character)
        share = 1.0 if self.is_whole else min(0.99, num_characters / max(1.0, total))
        how = "all of it" if self.is_whole else f"the beginnings of {counted(len(self.chosen), 'file')}"
        return share, f"{how} ({in_millions(total)} characters in {counted(len(self.files), 'file')})"


class StoreSource:
    """A token store; its text is what the tokens spell, so that what encoding lost (casing, [UNK]) stays lost."""

    is_text = False

    def __init__(self, store: TokenStore, tokenizer: Tokenizer, budget: int) -> None:
        self.store, self.tokenizer = store, tokenizer
        self.part = part_of_store(store, max(1, int(budget / CHARACTERS_A_TOKEN)))

    def documents(self) -> Iterator[LookedAt]:
        """Stretches spread evenly."""
        spell = Speller(self.tokenizer)
        for shard in self.part.shards:
            for ids in shard_documents(shard):
                yield LookedAt([[spell(sentence) for sentence in ids]], ids)

    def extent(self, num_characters: int) -> tuple[float, str]:
        """Tokens are counted in place of characters."""
        share = self.part.num_tokens / max(1, self.store.num_tokens)
        how = "all of it" if share == 1.0 else "stretches spread over all of it"
        return (
            share,
            f"{how} ({in_millions(self.store.num_tokens)} tokens in {counted(self.store.num_documents, 'document')})",
        )


class Speller:
    """Tokens back to text, pieces joined; fast, and blind to what is special."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        special = tokenizer.special_ids
        self._tokens = ["" if index in special else token for index, token in enumerate(tokenizer.tokens)]

    def __call__(self, ids: NDArray[Any]) -> str:
        return " ".join(map(self._tokens.__getitem__, ids.tolist())).replace(" ##", "").strip()


@dataclass(frozen=True)
class StorePart:
    """Some documents of a store, in the form of a store."""

    shards: list[Shard]

    @property
    def num_tokens(self) -> int:
        """Of this part."""
        return sum(int(shard.sentence_offsets[-1] - shard.sentence_offsets[0]) for shard in self.shards)


def part_of_store(store: TokenStore, max_tokens: int) -> StorePart:
    """About so many tokens, as stretches of whole documents spread evenly; everything where it fits."""
    whole = StorePart([shard for shard in store.shards if shard.num_documents])
    if not whole.shards:
        raise BertkitError(f"{store.folder} holds no documents; prepare it again from files with text")
    if whole.num_tokens <= max_tokens:
        return whole
    share = max_tokens / whole.num_tokens
    num = max(1, NUM_STRETCHES // len(whole.shards))
    return StorePart([stretch for shard in whole.shards for stretch in _stretches(shard, share, num)])


def _stretches(shard: Shard, share: float, num: int) -> Iterable[Shard]:
    """So many stretches of a shard that together hold about this share of its tokens; long documents are cut."""
    bounds = shard.sentence_offsets[shard.document_offsets]  # [D + 1] tokens before each document
    size = max(LEAST_STRETCH, int(share * bounds[-1] / num))
    firsts = np.searchsorted(bounds, np.linspace(0, bounds[-1], num, endpoint=False))
    end = 0
    for first in firsts[firsts < shard.num_documents].tolist():
        if first < end:  # the stretch before has it
            continue
        end = max(first + 1, int(np.searchsorted(bounds, bounds[first] + size)))
        sentences = shard.document_offsets[first : end + 1]
        last = max(sentences[0] + 1, int(np.searchsorted(shard.sentence_offsets, bounds[first] + size)))
        sentences = np.unique(np.minimum(sentences, last))
        tokens = shard.sentence_offsets[sentences[0] : sentences[-1] + 1]
        yield Shard(shard.tokens[tokens[0] : tokens[-1]], tokens - tokens[0], sentences - sentences[0])


def shard_documents(shard: Shard) -> Iterator[list[NDArray[Any]]]:
    """Every document as the ids of its sentences."""
    for first, end in pairwise(shard.document_offsets.tolist()):
        bounds = shard.sentence_offsets[first : end + 1].tolist()
        if sentences := [shard.tokens[start:stop] for start, stop in pairwise(bounds) if stop > start]:
            yield sentences
