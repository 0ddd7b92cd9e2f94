"""How well a vocabulary fits a text: into how many pieces it cuts the words, and what it does not know.

What enters: a tokenizer and texts, best ones that it was not learned from. What leaves: a VocabularyReport.
A word is what lies between spaces and punctuation and has a letter or digit; marks are left out, because every
vocabulary has them whole and they would flatter the figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from bertkit.tokenizer.encoding import Encoding
from bertkit.tokenizer.wordpiece import Tokenizer

BATCH_PARTS = 50_000
NUM_EXAMPLES = 10


@dataclass(frozen=True)
class VocabularyReport:
    """What a vocabulary makes of a text."""

    vocab_size: int
    num_words: int
    num_pieces: int  # of these words; [UNK] is one
    num_whole: int  # words that are one piece
    num_unknown: int  # words with an [UNK]
    longest_tokens: list[str]  # the longest words of the vocabulary itself
    most_pieces: list[tuple[str, int]]  # words of the text that are cut into most pieces
    unknown_words: list[tuple[str, int]]  # the commonest unknown words, and how often they occur

    @property
    def fertility(self) -> float:
        """Pieces a word; 1 is every word whole."""
        return self.num_pieces / max(1, self.num_words)

    @property
    def unknown_rate(self) -> float:
        """The share of words with an [UNK]."""
        return self.num_unknown / max(1, self.num_words)

    @property
    def whole_rate(self) -> float:
        """The share of words that stay whole."""
        return self.num_whole / max(1, self.num_words)

    def to_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        rates = {name: getattr(self, name) for name in ("fertility", "unknown_rate", "whole_rate")}
        return {**asdict(self), **rates}

    def lines(self) -> list[str]:
        """For people."""
        shown = [
            f"{self.vocab_size:,} tokens, measured on {self.num_words:,} words",
            f"pieces a word (fertility): {self.fertility:.4f}",
            f"words kept whole: {self.whole_rate:.2%}",
            f"unknown words: {self.unknown_rate:.4%} ({self.num_unknown:,})",
            f"longest tokens: {', '.join(self.longest_tokens)}",
            f"cut most: {', '.join(f'{word} ({count})' for word, count in self.most_pieces)}",
        ]
        if self.unknown_words:
            shown.append(f"unknown: {', '.join(f'{word} ({count}x)' for word, count in self.unknown_words)}")
        return shown


def measure_vocabulary(tokenizer: Tokenizer, texts: Iterable[str]) -> VocabularyReport:
    """Encode every different word of the texts once, and count."""
    parts: Counter[str] = Counter()
    for text in texts:
        parts.update(text.split(" "))
    tally = _Tally(tokenizer.unk_id)
    found = list(parts)
    for start in range(0, len(found), BATCH_PARTS):
        batch = found[start : start + BATCH_PARTS]
        for part, (encoding,) in zip(batch, tokenizer.encode_batch(batch), strict=True):
            tally.add(part, encoding, parts[part])
    return VocabularyReport(
        tokenizer.vocab_size,
        tally.num_words,
        tally.num_pieces,
        tally.num_whole,
        tally.num_unknown,
        sorted((token for token in tokenizer.tokens if token.isalpha()), key=_longest_first)[:NUM_EXAMPLES],
        _top(tally.pieces),
        _top(tally.unknown),
    )


class _Tally:
    """Counts of the words of encoded parts of text."""

    def __init__(self, unk_id: int) -> None:
        self.unk_id = unk_id
        self.num_words = self.num_pieces = self.num_whole = self.num_unknown = 0
        self.pieces: dict[str, int] = {}
        self.unknown: Counter[str] = Counter()

    def add(self, part: str, encoding: Encoding, times: int) -> None:
        """The words of one part of text that occurs so many times."""
        rows = zip(encoding.word_ids, encoding.ids, encoding.offsets, strict=True)
        for index, group in groupby(rows, key=lambda row: row[0]):
            pieces = list(group)
            word = part[pieces[0][2][0] : pieces[-1][2][1]]
            if index is None or not any(map(str.isalnum, word)):
                continue
            self.num_words += times
            self.num_pieces += times * len(pieces)
            if any(token_id == self.unk_id for _, token_id, _ in pieces):
                self.num_unknown += times
                self.unknown[word] += times
            elif len(pieces) == 1:
                self.num_whole += times
            else:
                self.pieces[word] = len(pieces)


def _longest_first(token: str) -> tuple[int, str]:
    return -len(token), token


def _top(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:NUM_EXAMPLES]
