"""Plain text to words, for tagging: cut as BERT's basic tokenizer does, then joined so that names are whole words.

The basic tokenizer cuts at every mark (O ' Brien, U . S .); tagged texts do not. Marks inside a word are joined to
it again; those around it stay words of their own, and so does the English 's.
"""

import unicodedata
from collections.abc import Sequence

from bertkit.tasks.reading.examples import TagExample
from bertkit.tokenizer import Encoding, Tokenizer

Span = tuple[int, int]

APOSTROPHES = frozenset("'’")
JOINING = APOSTROPHES | frozenset("-‐‑.&_@")
JOINING_DIGITS = frozenset(",:/")


def cut_text(text: str, tokenizer: Tokenizer) -> TagExample:
    """A text as a sentence to tag: its words, and where they stand."""
    spans = join_words(text, word_spans(text, tokenizer.encode(text)))
    return TagExample(tuple(text[start:end] for start, end in spans), text=text, spans=tuple(spans))


def word_spans(text: str, encoding: Encoding) -> list[Span]:
    """Characters of each word of text A as the tokenizer cuts it, accents that it strips included."""
    spans: list[Span] = []
    last: int | None = None
    for text_id, word, (start, end) in zip(encoding.text_ids, encoding.word_ids, encoding.offsets, strict=True):
        if text_id != 0 or word is None:
            continue
        if word == last:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
        last = word
    stops = [start for start, _ in spans[1:]] + [len(text)]
    return [(start, mark_end(text, end, stop)) for (start, end), stop in zip(spans, stops, strict=False)]


def mark_end(text: str, end: int, stop: int) -> int:
    """The end of what is written up to `end`: combining marks before `stop` belong to the character before them."""
    while end < stop and unicodedata.category(text[end]).startswith("M"):
        end += 1
    return end


def join_words(text: str, spans: Sequence[Span]) -> list[Span]:
    """Basic words that touch and belong together as one."""
    joined: list[Span] = []
    for run in _touching(spans):
        first = 0
        for size in group_marks([text[start:end] for start, end in run]):
            joined.append((run[first][0], run[first + size - 1][1]))
            first += size
    return joined


def _touching(spans: Sequence[Span]) -> list[list[Span]]:
    """Runs of spans with nothing between them."""
    runs: list[list[Span]] = []
    for span in spans:
        if runs and runs[-1][-1][1] == span[0]:
            runs[-1].append(span)
        else:
            runs.append([span])
    return runs


def group_marks(pieces: Sequence[str]) -> list[int]:
    """How many of these touching basic words make each word: U . S . , O ' Brien ' s gives 4, 1, 3, 2."""
    sizes: list[int] = []
    first = 0
    while first < len(pieces):
        following = first + 1
        while more := _num_joined(pieces, first, following):
            following += more
        sizes.append(following - first)
        first = following
    return sizes


def _num_joined(pieces: Sequence[str], first: int, following: int) -> int:
    """How many basic words from `following` on belong to the word that began at `first`."""
    if following >= len(pieces) or _is_possessive(pieces, following):
        return 0
    if following == first + 1 and _is_possessive(pieces, first):
        return 1
    last, mark = pieces[following - 1], pieces[following]
    if not _is_wordy(last):
        return 0
    if following + 1 < len(pieces) and _is_wordy(pieces[following + 1]) and _joins(last, mark, pieces[following + 1]):
        return 2
    return int(mark == "." and "." in pieces[first:following])  # the last point of U.S.


def _joins(left: str, mark: str, right: str) -> bool:
    return mark in JOINING or (mark in JOINING_DIGITS and left[-1].isdigit() and right[0].isdigit())


def _is_possessive(pieces: Sequence[str], index: int) -> bool:
    """Whether the 's at a word's end begins here."""
    after = pieces[index + 1 : index + 3]
    at_end = bool(after) and after[0] in ("s", "S") and not (len(after) > 1 and _is_wordy(after[1]))
    return at_end and pieces[index] in APOSTROPHES and index > 0 and _is_wordy(pieces[index - 1])


def _is_wordy(piece: str) -> bool:
    return any(character.isalnum() for character in piece)
