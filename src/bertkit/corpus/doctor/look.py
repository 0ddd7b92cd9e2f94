"""Is this corpus fit to train on? A bounded look at text or at a token store, as a list of findings.

What enters: a Source. What leaves: Findings on duplicates, boilerplate, markup, unknown words, pieces a word, lengths,
languages and casing, and a Look with the figures behind them. No torch here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.doctor.sample import LookedAt, Source, TextSource
from bertkit.errors import BertkitError
from bertkit.text.languages import LanguageCounts
from bertkit.text.repeats import Repeats
from bertkit.tokenizer.wordpiece import Tokenizer

PASSAGE = 400  # characters that are judged together: enough words to tell a language
WORDS_KEPT = 2_000_000  # characters of text kept for a look at the words themselves
TAGS = "p|br|hr|div|span|a|b|i|em|strong|u|li|ul|ol|td|tr|th|table|h[1-6]|img|ref|sup|sub|script|style"
ENTITIES = r"amp|nbsp|lt|gt|quot|apos|mdash|ndash|#\s?\d{1,5}"
# With the spaces that tokens of a store are joined by.
MARKUP = re.compile(rf"<\s?/?\s?(?:{TAGS})\b[^<>]{{0,200}}>|&\s?(?:{ENTITIES})\s?;", re.IGNORECASE)

Progress = Callable[[int], None]  # takes characters


class PieceCounts:
    """Words, pieces and unknown words, counted on ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokens = tokenizer.tokens
        self._continues = np.array([token.startswith("##") for token in tokens])
        self._begins = np.array([not token.startswith("##") and any(map(str.isalnum, token)) for token in tokens])
        self._begins[sorted(tokenizer.special_ids)] = False
        self._begins[tokenizer.unk_id] = True  # it stands for a word
        self._unk_id = tokenizer.unk_id
        self.num_words = self.num_pieces = self.num_unknown = 0

    def add(self, ids: NDArray[np.int64]) -> None:
        """The ids of a document."""
        begun = int(self._begins[ids].sum())
        self.num_words += begun
        self.num_pieces += begun + int(self._continues[ids].sum())
        self.num_unknown += int((ids == self._unk_id).sum())

    @property
    def unknown_rate(self) -> float:
        """Unknown words among all."""
        return self.num_unknown / max(1, self.num_words)

    @property
    def fertility(self) -> float:
        """Pieces a word."""
        return self.num_pieces / max(1, self.num_words)


@dataclass
class Look:
    """What was seen of a corpus."""

    source: Source
    pieces: PieceCounts
    repeats: Repeats = field(default_factory=Repeats)
    languages: LanguageCounts = field(default_factory=LanguageCounts)
    num_characters: int = 0
    num_paragraphs: int = 0
    marks: Counter[str] = field(default_factory=Counter)  # the first tag or entity of each paragraph that has one
    document_lengths: list[int] = field(default_factory=list)  # sentences
    document_tokens: list[int] = field(default_factory=list)
    sentence_lengths: list[NDArray[np.int64]] = field(default_factory=list)  # tokens, a row a document
    kept: list[str] = field(default_factory=list)
    _num_kept: int = 0

    def add(self, document: LookedAt) -> int:
        """One more document; gives its characters."""
        self.repeats.add_document(document.paragraphs)
        for passage in passages_of(document):
            self.languages.add(passage)
        lengths = np.array([len(ids) for ids in document.ids])
        self.pieces.add(np.concatenate(document.ids).astype(np.int64))
        self.document_lengths.append(len(lengths))
        self.document_tokens.append(int(lengths.sum()))
        self.sentence_lengths.append(lengths)
        size = sum(len(sentence) + 1 for paragraph in document.paragraphs for sentence in paragraph)
        self.num_characters += size
        paragraphs = [" ".join(paragraph) for paragraph in document.paragraphs]
        self.num_paragraphs += len(paragraphs)
        self.marks.update(found[0] for paragraph in paragraphs if (found := MARKUP.search(paragraph)))
        if self._num_kept < WORDS_KEPT:
            self.kept += paragraphs
            self._num_kept += size
        return size

    @property
    def num_documents(self) -> int:
        """Looked at."""
        return len(self.document_lengths)

    @property
    def num_tokens(self) -> int:
        """Looked at."""
        return sum(self.document_tokens)

    @property
    def share(self) -> float:
        """Of all text, about."""
        return self.source.extent(self.num_characters)[0]

    @property
    def all_sentence_lengths(self) -> NDArray[np.int64]:
        """Tokens of every sentence."""
        return np.concatenate(self.sentence_lengths)


def passages_of(document: LookedAt) -> Iterator[str]:
    """The document in runs of sentences of a few lines each."""
    run: list[str] = []
    size = 0
    for sentence in (sentence for paragraph in document.paragraphs for sentence in paragraph):
        run.append(sentence)
        size += len(sentence)
        if size >= PASSAGE:
            yield " ".join(run)
            run, size = [], 0
    if run:
        yield " ".join(run)


def look_at(source: Source, progress: Progress = lambda characters: None) -> Look:
    """Look at as much as the source's budget allows."""
    look = Look(source, PieceCounts(source.tokenizer))
    for document in source.documents():
        progress(look.add(document))
    if not look.num_documents:
        why = source.report.why_nothing if isinstance(source, TextSource) else ""
        raise BertkitError(f"there is no text to look at{why}; name files or a store with at least one sentence")
    return look
