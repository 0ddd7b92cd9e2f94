"""Whether the first row of a file names its columns, and which names say what a column holds."""

import re
from collections.abc import Sequence

# Small letters and digits only, as `plain_name` writes them; earlier ones win.
PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("1string", "2string"),  # MRPC's "#1 String"
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("texta", "textb"),
    ("text1", "text2"),
    ("sentencea", "sentenceb"),
    ("question", "sentence"),
    ("question", "answer"),
    ("question", "passage"),
    ("query", "passage"),
    ("query", "document"),
    ("text", "pair"),
)
TEXT_NAMES = (
    *("text", "sentence", "review", "content", "comment", "tweet", "message", "body", "document", "utterance"),
    *("question", "query", "description", "headline", "title"),
)
LABEL_NAMES = (
    *("label", "labels", "goldlabel", "class", "category", "sentiment", "target", "score", "similarity", "quality"),
    *("isduplicate", "rating", "stars", "intent", "topic", "emotion", "polarity", "gold"),
)
KNOWN_NAMES = {*TEXT_NAMES, *LABEL_NAMES, *(name for pair in PAIR_NAMES for name in pair)}
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


def plain_name(name: str) -> str:
    """A column's name without what people write differently: case, spaces, signs."""
    return re.sub(r"[\W_]+", "", name.lower())


def is_number(cell: str) -> bool:
    """Whether a cell is a plain number."""
    return NUMBER.fullmatch(cell) is not None


def is_header(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns: short different names, by which we know one or under which it looks different."""
    names = [plain_name(cell) for cell in first if cell.strip()]
    if len(KNOWN_NAMES.intersection(names)) > 1:
        return True  # even where one stands twice
    if len(set(names)) < len(names) or not names or any(is_number(cell) or len(cell.split()) > 4 for cell in first):
        return False
    if any(name in KNOWN_NAMES for name in names):
        return True
    columns = [[row[index] for row in others if index < len(row)] for index in range(len(first))]
    if any(cell in column for cell, column in zip(first, columns, strict=True)):
        return False
    return any(column and (all(map(is_number, column)) or mean_words(column) >= 4) for column in columns)


def mean_words(cells: Sequence[str]) -> float:
    """How many words a cell has."""
    return sum(len(cell.split()) for cell in cells) / max(1, len(cells))
