"""What the readers hand to the tasks: texts with labels, words with tags, questions with answers. No torch here."""

from dataclasses import dataclass

Label = str | float | tuple[str, ...]  # one class, a number (regression), or several classes at once


@dataclass(frozen=True)
class TextExample:
    """One text or two, and what is known about them."""

    text: str
    pair: str | None = None
    label: Label | None = None
    line: int | None = None  # where it stood in its file, counted from 1


@dataclass(frozen=True)
class TagExample:
    """A sentence as words, one tag each (BIO), and where the words stand in the text if it is known."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    line: int | None = None
    text: str | None = None
    spans: tuple[tuple[int, int], ...] | None = None  # of words, in characters of the text


@dataclass(frozen=True)
class Answer:
    """An answer and the character of the context at which it starts."""

    text: str
    start: int


@dataclass(frozen=True)
class QuestionExample:
    """A question about a context; an impossible one has no answers."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    is_impossible: bool = False
    name: str | None = None  # the title of its article
    line: int | None = None
