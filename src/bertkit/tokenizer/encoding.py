"""One text, or one pair of texts, as a model takes it: [CLS] a [SEP] or [CLS] a [SEP] b [SEP].

What enters: the raw encodings of the `tokenizers` library, and which stretch of each is kept.
What leaves: token ids and segment ids, and for those who look closer, where each token came from.
Only ids are made at once; everything else is computed when asked for, because most callers never ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import tokenizers as tk

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The strings of the five tokens that BERT cannot do without."""

    pad: str = "[PAD]"
    unk: str = "[UNK]"
    cls: str = "[CLS]"
    sep: str = "[SEP]"
    mask: str = "[MASK]"

    def all(self) -> tuple[str, ...]:
        """The five strings, in the order in which a new vocabulary begins."""
        return (self.pad, self.unk, self.cls, self.sep, self.mask)


@dataclass(frozen=True, slots=True)
class Window:
    """Which stretch of a long text this is: window `index` of `count`, starting at these tokens of the texts."""

    index: int = 0
    count: int = 1
    start_a: int = 0
    start_b: int = 0
    sliding_text: int | None = None  # 0 or 1: the text that the windows slide over; None when all of it fitted


WHOLE = Window()


@dataclass(frozen=True, slots=True)
class Encoding:
    """Token ids of one model input; len() is the number of tokens, special tokens included."""

    ids: list[int]
    num_a: int  # tokens of text A in this encoding
    num_b: int | None  # tokens of text B; None when there is no text B
    num_cut: int  # tokens that truncation dropped from the ends of the texts
    window: Window
    _raw_a: tk.Encoding = field(repr=False, compare=False)
    _raw_b: tk.Encoding | None = field(repr=False, compare=False)
    _special: SpecialTokens = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def segment_ids(self) -> list[int]:
        """0 for [CLS], text A and its [SEP]; 1 for text B and its [SEP]."""
        first = [0] * (self.num_a + 2)
        return first if self.num_b is None else first + [1] * (self.num_b + 1)

    @property
    def text_ids(self) -> list[int | None]:
        """0 for tokens of text A, 1 for tokens of text B, None for the special tokens put around them."""
        return self._framed([0] * self.num_a, [1] * (self.num_b or 0), None, None)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Character span of each token in its own original text; (0, 0) for the special tokens put around them."""
        return self._read(lambda raw: raw.offsets, (0, 0), (0, 0))

    @property
    def word_ids(self) -> list[int | None]:
        """Index of each token's word within its text; None for the special tokens put around them."""
        return self._read(lambda raw: raw.word_ids, None, None)

    @property
    def tokens(self) -> list[str]:
        """Each token as the vocabulary spells it."""
        return self._read(lambda raw: raw.tokens, self._special.cls, self._special.sep)

    def _read(self, column: Callable[[tk.Encoding], Sequence[T]], cls: T, sep: T) -> list[T]:
        window = self.window
        part_a = column(self._raw_a)[window.start_a : window.start_a + self.num_a]
        if self._raw_b is None:
            return self._framed(part_a, (), cls, sep)
        part_b = column(self._raw_b)[window.start_b : window.start_b + (self.num_b or 0)]
        return self._framed(part_a, part_b, cls, sep)

    def _framed(self, part_a: Sequence[T], part_b: Sequence[T], cls: T, sep: T) -> list[T]:
        first = [cls, *part_a, sep]
        return first if self.num_b is None else [*first, *part_b, sep]
