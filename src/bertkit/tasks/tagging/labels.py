"""What the names of labels say (BIO, IOB1, IO, IOE, BIOES, BILOU): which may follow which, and where entities are.

In: a checkpoint's labels, whoever trained it. Out: legal sequences, tags as BIO, and entities as spans of words.
Labels without any prefix (parts of speech, say) are taken as they are: every sequence is legal.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import BertkitError

OUTSIDE = "O"
PREFIXED = re.compile(r"([BIMELSU])[-_](.+)", re.DOTALL)
SAME_POSITION = {"M": "I", "L": "E", "U": "S"}  # other schemes' letters for the middle, the last and the only word


@dataclass(frozen=True)
class Tag:
    """A label taken apart: B, I, E or S (begin, inside, end, single) of a kind; O has no kind."""

    position: str
    kind: str = ""


@dataclass(frozen=True)
class WordSpan:
    """An entity as words first to last, both included."""

    kind: str
    first: int
    last: int


def parse_tag(label: str) -> Tag:
    """The parts of one label; a name without a prefix is the inside of its own kind."""
    if label == OUTSIDE:
        return Tag(OUTSIDE)
    found = PREFIXED.fullmatch(label)
    return Tag(SAME_POSITION.get(found[1], found[1]), found[2]) if found else Tag("I", label)


def tag_labels(sentences: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The labels that these tags need: O, then B and I of every kind; tags without prefixes as they are."""
    seen = {tag for tags in sentences for tag in tags}
    if not any(PREFIXED.fullmatch(tag) for tag in seen):
        return tuple(sorted(seen, key=lambda tag: (tag != OUTSIDE, tag)))
    kinds = sorted({parse_tag(tag).kind for tag in seen - {OUTSIDE}})
    return (OUTSIDE, *(f"{position}-{kind}" for kind in kinds for position in "BI"))


def find_entities(tags: Sequence[Tag]) -> list[WordSpan]:
    """Entities in words; an I or E with nothing to continue begins one, as conlleval reads it."""
    spans: list[WordSpan] = []
    open_kind: str | None = None
    for word, tag in enumerate(tags):
        if tag.position == OUTSIDE:
            open_kind = None
            continue
        if tag.position in "IE" and open_kind == tag.kind:
            spans[-1] = WordSpan(tag.kind, spans[-1].first, word)
        else:
            spans.append(WordSpan(tag.kind, word, word))
        open_kind = None if tag.position in "ES" else tag.kind
    return spans


def bio_tags(spans: Iterable[WordSpan], num_words: int) -> list[str]:
    """The tags of these entities as BIO."""
    tags = [OUTSIDE] * num_words
    for span in spans:
        tags[span.first] = f"B-{span.kind}"
        tags[span.first + 1 : span.last + 1] = [f"I-{span.kind}"] * (span.last - span.first)
    return tags


class TagScheme:
    """The labels of one model, by index."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.tags = [parse_tag(label) for label in labels]
        self.is_prefixed = any(PREFIXED.fullmatch(label) for label in labels)
        self._index = {tag: index for index, tag in reversed(list(enumerate(self.tags)))}
        has = {position: {tag.kind for tag in self.tags if tag.position == position} for position in "BIES"}
        # Without a B of its own an I must be able to begin: IO, IOB1 or IOE, which is then so for every kind.
        self.inside_begins = bool((has["I"] | has["E"]) - has["B"])
        self._closed = has["E"]

    @cached_property
    def can_begin(self) -> NDArray[np.bool_]:
        """Which labels may stand on the first word: [C]."""
        return np.array([self._may_follow(Tag(OUTSIDE), tag) for tag in self.tags])

    @cached_property
    def can_follow(self) -> NDArray[np.bool_]:
        """Which label (column) may follow which (row): [C, C]."""
        return np.array([[self._may_follow(before, tag) for tag in self.tags] for before in self.tags])

    @cached_property
    def can_end(self) -> NDArray[np.bool_]:
        """Which labels may stand on the last word: [C]."""
        return np.array([not self._is_open(tag) for tag in self.tags])

    def is_legal(self, ids: NDArray[np.int64]) -> bool:
        """Whether these labels may stand in this order."""
        if not len(ids):
            return True
        inner = self.can_follow[ids[:-1], ids[1:]].all()
        return bool(self.can_begin[ids[0]] and inner and self.can_end[ids[-1]])

    def _is_open(self, tag: Tag) -> bool:
        """Whether its entity must go on: so where the kind has a label for its last word."""
        return tag.position in "BI" and tag.kind in self._closed

    def _may_follow(self, before: Tag, tag: Tag) -> bool:
        if not self.is_prefixed:
            return True
        continues = tag.position in "IE" and before.position in "BI" and before.kind == tag.kind
        if self._is_open(before):
            return continues
        return continues or tag.position not in "IE" or self.inside_begins

    def spell(self, ids: Iterable[int]) -> tuple[list[str], list[WordSpan]]:
        """What a sequence of labels says: tags (BIO, or the labels themselves without prefixes) and entities."""
        ids = list(ids)
        spans = find_entities([self.tags[index] for index in ids])
        tags = bio_tags(spans, len(ids)) if self.is_prefixed else [self.labels[index] for index in ids]
        return tags, spans

    def targets(self, tags: Sequence[str]) -> list[int]:
        """The labels that say what these tags (BIO) say, in this model's own scheme."""
        if not self.is_prefixed:
            return [self._label(Tag(OUTSIDE) if tag == OUTSIDE else Tag("I", tag)) for tag in tags]
        parsed = [parse_tag(tag) for tag in tags]
        spelled = [Tag(OUTSIDE)] * len(tags)
        previous: WordSpan | None = None
        for span in find_entities(parsed):
            touches = previous is not None and previous.kind == span.kind and previous.last + 1 == span.first
            for word in range(span.first, span.last + 1):
                spelled[word] = self._position(span, word, touches)
            previous = span
        return [self._label(tag) for tag in spelled]

    def _position(self, span: WordSpan, word: int, touches: bool) -> Tag:
        """The tag of one word of an entity, among those that the model has."""
        begins = "IB" if self.inside_begins and not touches else "BI"
        if span.first == span.last:
            wanted = "SE" + begins if self.inside_begins else "SBIE"
        elif word == span.first:
            wanted = begins
        else:
            wanted = "EI" if word == span.last else "I"
        found = (Tag(position, span.kind) for position in wanted if Tag(position, span.kind) in self._index)
        return next(found, Tag("B", span.kind))

    def _label(self, tag: Tag) -> int:
        if tag not in self._index:
            name = (
                OUTSIDE if tag.position == OUTSIDE else f"{tag.position}-{tag.kind}" if self.is_prefixed else tag.kind
            )
            raise BertkitError(f"the tag {name} is none of the model's labels ({', '.join(self.labels)})")
        return self._index[tag]
