"""Files of tagged words in columns (CoNLL, WikiANN) -> TagExamples with BIO tags.

What enters: one word a line, its tag in the last column, a blank line between sentences; IOB1, BIO and BIOES alike;
plain or packed. What leaves: sentences. -DOCSTART- lines and comments are passed over; a bad line spoils its sentence.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bertkit.errors import BertkitError
from bertkit.tasks.reading.examples import TagExample
from bertkit.tasks.reading.lines import check_unicode, raw_lines, sample_lines
from bertkit.tasks.reading.problems import BadRowError, Problems
from bertkit.tasks.tagging.labels import OUTSIDE, PREFIXED, bio_tags, find_entities, parse_tag
from bertkit.text.counted import counted

DOCUMENT_START = "-DOCSTART-"
LANGUAGE = re.compile(r"[a-z][a-z-]{1,11}:")  # before every word of WikiANN
WIDTHS = "{} where most lines have {}; write every word with the same columns"


@dataclass(frozen=True)
class TagOptions:
    """Where words and tags stand, counted from 1 or back from -1; a file of bare words has no tags."""

    word_column: int = 1
    tag_column: int = -1
    skip_bad: bool = False

    def __post_init__(self) -> None:
        for column in (self.word_column, self.tag_column):
            if not isinstance(column, int) or not column:
                raise BertkitError(f"columns are counted from 1 (or back from -1), so {column!r} is none")


@dataclass(frozen=True)
class TagTable:
    """All sentences of a file, and what was seen on the way."""

    examples: list[TagExample]
    guess: str  # for people
    problems: Problems

    def lines(self) -> list[str]:
        """For people: what was taken, and what was left out."""
        return [f"{self.problems.file}: {len(self.examples):,} sentences, {self.guess}", *self.problems.lines()]


@dataclass
class _Sentence:
    """The lines of a sentence, as they come."""

    line: int = 0
    cells: list[list[str]] = field(default_factory=list)
    problem: tuple[int, str] | None = None  # the first


class TagSource:
    """A file of tagged sentences, to be read as often as wanted, one at a time."""

    def __init__(self, path: str | Path, options: TagOptions | None = None) -> None:
        self.path, self.options = Path(path), options or TagOptions()
        if not self.path.is_file():
            raise BertkitError(f"no file {path}; name a file with one word and its tag a line")
        self.problems = Problems(str(path), self.options.skip_bad)
        self._look(sample_lines(self.path))

    def _look(self, sample: Sequence[str]) -> None:
        """Learn from the first lines: what separates columns, how many there are, whether a language stands before."""
        filled = [line for line in sample if line.strip() and not line.startswith(("#", DOCUMENT_START))]
        if not filled:
            raise BertkitError(f"{self.path} has no words; write one a line, its tag behind it")
        self.by_tabs = all("\t" in line for line in filled)
        cells = [self._cells(line) for line in filled]
        self.width = Counter(map(len, cells)).most_common(1)[0][0]
        self.tagged = self.width > 1
        found = {match[0] if (match := LANGUAGE.match(row[0])) else "" for row in cells}
        self.prefix = found.pop() if len(found) == 1 else ""
        for column in (self.options.word_column, self.options.tag_column):
            if abs(column) > self.width:
                raise BertkitError(f"{self.path} has {self.width} columns and no column {column}; name another")
        tags = [self._tag(row) for row in cells if self.tagged and len(row) == self.width]
        named = [is_entity_tag(tag) for tag in tags if tag != OUTSIDE]
        # Else kinds without prefixes, or parts of speech; however many words are outside, they say nothing of that.
        self.in_entities = bool(tags) and 2 * sum(named) >= len(named)

    @property
    def guess(self) -> str:
        """Which columns are taken."""
        column = self.options.tag_column
        place = column if column > 0 else self.width + 1 + column
        how = "read as BIO" if self.in_entities else "taken as it is"
        tags = f"tag = column {place}, {how}" if self.tagged else "no tags"
        prefix = f" (without its {self.prefix!r})" if self.prefix else ""
        return f"word = column {self.options.word_column}{prefix}, {tags}"

    def _cells(self, line: str) -> list[str]:
        text = line.removesuffix("\n").removesuffix("\r")
        return text.split("\t") if self.by_tabs else [cell for cell in re.split("[ \t]", text) if cell]

    def is_comment(self, line: str) -> bool:
        """Whether a line before a sentence is a remark; a hashtag with its columns is a word."""
        try:
            return line.startswith("#") and not self._checked(line)
        except BadRowError:
            return True

    def __iter__(self) -> Iterator[TagExample]:
        self.problems = Problems(self.problems.file, self.options.skip_bad)
        for sentence in self._sentences():
            if sentence.problem is not None:
                self.problems.add(*sentence.problem)
            elif sentence.cells:
                yield self._example(sentence)

    def _sentences(self) -> Iterator[_Sentence]:
        sentence = _Sentence()
        for number, line in enumerate(raw_lines(self.path), start=1):
            if not line.strip() or line.startswith(DOCUMENT_START):
                yield sentence
                sentence = _Sentence()
                continue
            try:
                cells = self._checked(line)
            except BadRowError as error:
                if line.startswith("#") and not sentence.cells:
                    continue  # a comment before a sentence
                sentence.problem = sentence.problem or (number, str(error))
            else:
                sentence.line = sentence.line or number
                sentence.cells.append(cells)
        yield sentence

    def _checked(self, line: str) -> list[str]:
        cells = self._cells(check_unicode(line))
        if len(cells) != self.width:
            raise BadRowError(WIDTHS.format(counted(len(cells), "column"), self.width))
        if not self._word(cells).strip():
            raise BadRowError("the word is empty; fill it in, or take the line out")
        if self.tagged and not self._tag(cells):
            raise BadRowError(f"the tag of {self._word(cells)!r} is empty; write {OUTSIDE} for none")
        if self.in_entities and not is_entity_tag(self._tag(cells)):
            raise BadRowError(f"the tag {self._tag(cells)!r} is neither {OUTSIDE} nor as B-PER, I-PER; correct it")
        return cells

    def _word(self, cells: Sequence[str]) -> str:
        return _pick(cells, self.options.word_column).removeprefix(self.prefix)

    def _tag(self, cells: Sequence[str]) -> str:
        return _pick(cells, self.options.tag_column).strip()

    def _example(self, sentence: _Sentence) -> TagExample:
        words = tuple(self._word(cells) for cells in sentence.cells)
        tags = to_bio([self._tag(cells) for cells in sentence.cells]) if self.tagged else None
        return TagExample(words, tags, sentence.line)


def _pick(cells: Sequence[str], column: int) -> str:
    return cells[column - 1 if column > 0 else column]


def is_entity_tag(tag: str) -> bool:
    """O, or a kind behind B-, I-, E-, S- and the like."""
    return tag == OUTSIDE or PREFIXED.fullmatch(tag) is not None


def to_bio(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags of any scheme as BIO; tags without prefixes (parts of speech, say) as they are."""
    if not all(map(is_entity_tag, tags)):
        return tuple(tags)
    return tuple(bio_tags(find_entities([parse_tag(tag) for tag in tags]), len(tags)))


def read_conll(path: str | Path, options: TagOptions | None = None) -> TagTable:
    """All sentences of a file."""
    source = TagSource(path, options)
    examples = list(source)
    if not examples:
        raise BertkitError(f"{path} has no sentences to use; {source.problems.count:,} were bad")
    return TagTable(examples, source.guess, source.problems)
