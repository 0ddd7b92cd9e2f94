"""How much of a corpus is there twice: exact copies, near copies, and lines that stand in document after document.

What enters: sentences, paragraphs, documents. What leaves: shares and examples. Memory is bounded for any amount: when
too many different texts were met, only those whose hash ends in so many zeros are followed. All copies of a text share
its hash, so the share among those is the share among all.
"""

import re
from dataclasses import dataclass, field
from hashlib import blake2b

MAX_KEYS = 1 << 19  # different texts followed; about 100 MB with their sizes
MAX_LINES = 50_000
LEAST_CHARACTERS = 40  # of a text whose return is no chance; "Yes." may come as often as it likes
LEAST_WORDS = 3  # of a line that may be boilerplate
SHOWN_CHARACTERS = 80
MARKS = re.compile(r"[\W_]+")
DIGITS = re.compile(r"\d+")


@dataclass
class RepeatCounter:
    """Counts texts by their hash."""

    max_keys: int = MAX_KEYS
    _mask: int = 0
    _counts: dict[int, int] = field(default_factory=dict, repr=False)
    _sizes: dict[int, int] = field(default_factory=dict, repr=False)

    def add(self, text: str) -> None:
        """One more text; short ones do not count."""
        if len(text) < LEAST_CHARACTERS:
            return
        key = int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
        if key & self._mask:
            return
        self._counts[key] = self._counts.get(key, 0) + 1
        self._sizes[key] = len(text)
        if len(self._counts) > self.max_keys:
            self._thin()

    def _thin(self) -> None:
        """Follow half of the texts from now on."""
        self._mask = 2 * self._mask + 1
        self._counts = {key: count for key, count in self._counts.items() if not key & self._mask}
        self._sizes = {key: self._sizes[key] for key in self._counts}

    @property
    def share(self) -> float:
        """The share of characters that were there before."""
        total = sum(count * self._sizes[key] for key, count in self._counts.items())
        again = sum((count - 1) * self._sizes[key] for key, count in self._counts.items())
        return again / max(1, total)


@dataclass
class LineCounter:
    """Finds the lines that stand in most documents; when there are too many lines, the rare ones are forgotten."""

    max_lines: int = MAX_LINES
    num_documents: int = 0
    _lines: dict[str, int] = field(default_factory=dict, repr=False)

    def add_document(self, lines: list[str]) -> None:
        """The lines of one document; each counts once."""
        self.num_documents += 1
        for line in dict.fromkeys(line[:SHOWN_CHARACTERS] for line in lines):
            if line.count(" ") + 1 >= LEAST_WORDS:
                self._lines[line] = self._lines.get(line, 0) + 1
        rare = 1
        while len(self._lines) > self.max_lines:
            self._lines = {line: count for line, count in self._lines.items() if count > rare}
            rare += 1

    def common(self, least: int) -> list[tuple[str, int]]:
        """The lines of at least so many documents, the commonest first."""
        found = [(line, count) for line, count in self._lines.items() if count >= least]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))


def bare(text: str) -> str:
    """What near copies share: the words in small letters, numbers all alike, no marks."""
    return MARKS.sub(" ", DIGITS.sub("0", text.casefold())).strip()


@dataclass
class Repeats:
    """All of it for one corpus."""

    sentences: RepeatCounter = field(default_factory=RepeatCounter)
    near: RepeatCounter = field(default_factory=RepeatCounter)
    paragraphs: RepeatCounter = field(default_factory=RepeatCounter)
    documents: RepeatCounter = field(default_factory=RepeatCounter)
    lines: LineCounter = field(default_factory=LineCounter)

    def add_document(self, paragraphs: list[list[str]]) -> None:
        """One document as the sentences of its paragraphs."""
        sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
        for sentence in sentences:
            self.sentences.add(sentence)
            self.near.add(bare(sentence))
        for paragraph in paragraphs:
            self.paragraphs.add(" ".join(paragraph))
        self.documents.add(" ".join(sentences))
        self.lines.add_document([" ".join(paragraph) for paragraph in paragraphs] + sentences)
