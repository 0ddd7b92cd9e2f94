"""Splitting a paragraph into sentences by rules: the units of next-sentence prediction (section 3.1 of the paper).

What enters: one paragraph. What leaves: its sentences in order; joined they are the paragraph, up to white space.
A regular expression finds the places where a sentence can end; a few rules on the word before and the word after
decide. Abbreviations are English; the marks of other scripts end sentences without any white space.
"""

import re
from collections.abc import Iterator

from bertkit.text.abbreviations import BEFORE_NUMBERS, NEVER_LAST, SELDOM_LAST, STARTERS
from bertkit.text.documents import Document

CLOSERS = "\"'”’“‘»›)\\]}"
OPENERS = "\"'“‘„«‹(\\[{¿¡"
# A stop, what closes with it (quotes, brackets, a note's mark [3]), white space; next a capital, digit or other script.
# The look behind keeps a long run of stops from being tried from every place in it.
WESTERN = re.compile(
    rf"[.!?…؟۔।॥](?<![.!?…].)[.!?…]*[{CLOSERS}]*(?:\[\w{{1,3}}\])*(\s+)(?=[{OPENERS}]*([^\W_a-z]))",
)
# Chinese and Japanese stops end a sentence by themselves; quoted speech goes on with a particle (「はい。」と言った).
EASTERN = re.compile(
    "[。！？｡](?<![。！？｡].)[。！？｡…]*[」』”’）】〉》)\\]\"']*(?!(?<=[」』])[とっ])(\\s*)(?=[^\\s。！？｡」』”’）】〉》)\\]\"'])"
)
NEXT_WORD = re.compile(r"\w+(?:['’]\w+)?")
AROUND_WORD = "\"'“”‘’„«»‹›()[]{}—–,;:"
LETTERS_WITH_STOPS = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")  # U.S, e.g, Ph.D
INITIALS = re.compile(r"(?:^|\b[^\W\d_]\. ?)I$")  # V. I, or nothing before it
ROMAN_NUMBER = re.compile(r"[IVXLC]{2,}\b|[VXLC]\b")
LOOK_BACK = 24  # characters; no abbreviation is longer


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, each without white space around it; none when there is nothing but white space."""
    sentences = []
    start = 0
    for end, resume in _breaks(paragraph):
        sentences.append(paragraph[start:end].strip())
        start = resume
    sentences.append(paragraph[start:].strip())
    return [sentence for sentence in sentences if sentence]


def document_sentences(document: Document) -> list[list[str]]:
    """The sentences of each paragraph of a document; its lines where the file has a sentence a line."""
    if document.lines_are_sentences:
        return [[paragraph.strip()] for paragraph in document.paragraphs]
    return [split_sentences(paragraph) for paragraph in document.paragraphs]


def _breaks(text: str) -> Iterator[tuple[int, int]]:
    """Where each sentence but the last ends, and where the next begins."""
    start = 0
    western: list[tuple[int, int]] = []
    for match in WESTERN.finditer(text):
        if _ends_sentence(text, match, start):
            western.append(match.span(1))
            start = match.end()
    if text.isascii() or not EASTERN.search(text):
        return iter(western)
    return iter(sorted({*western, *(match.span(1) for match in EASTERN.finditer(text))}))


def _ends_sentence(text: str, match: re.Match[str], start: int) -> bool:
    """Whether the stop at this place ends the sentence that began at `start`."""
    at, next_letter = match.start(), match[2]
    if next_letter.islower():
        return False
    if text[at] != "." or text.startswith("..", at):
        return True
    before = text[max(start, at - LOOK_BACK) : at]
    word = _last_word(before)
    lower = word.lower()
    if word.isdigit():
        return at - len(word) > start  # not the number of a list's entry: 1. First
    if lower in BEFORE_NUMBERS:
        return not (next_letter.isdigit() or ROMAN_NUMBER.match(text, match.start(2)))
    if lower in SELDOM_LAST or _is_initial(word, before) or LETTERS_WITH_STOPS.fullmatch(word):
        return _starts_sentence(text, match)
    return lower not in NEVER_LAST


def _is_initial(word: str, before: str) -> bool:
    """Whether this is a letter that stands for a name; I is one only after another (V. I. Lenin, not World War I)."""
    return len(word) == 1 and word.isalpha() and (word != "I" or INITIALS.search(before) is not None)


def _last_word(before: str) -> str:
    """The word at the end, without what opened or closed around it."""
    words = before.rsplit(None, 1)
    word = words[-1].strip(AROUND_WORD) if words else ""
    return word.rpartition("—")[2] if "—" in word else word


def _starts_sentence(text: str, match: re.Match[str]) -> bool:
    """Whether what follows is a word that mostly begins a sentence when it has a capital."""
    following = NEXT_WORD.match(text, match.start(2))
    return following is not None and following[0] in STARTERS
