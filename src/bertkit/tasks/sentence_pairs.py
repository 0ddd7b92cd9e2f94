"""Files of sentence pairs -> PairExamples: with a score (STS-B), as paraphrases alone, or with a hard negative beside.

In: a csv, tsv, jsonl or parquet file and perhaps the names of its columns. Out: pairs, and what they can teach.
No torch here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from bertkit.errors import BertkitError
from bertkit.tasks.reading.examples import TextExample
from bertkit.tasks.reading.headers import plain_name
from bertkit.tasks.reading.problems import Problems
from bertkit.tasks.reading.tables import open_table
from bertkit.tasks.reading.texts import TextOptions, TextSource

Loss = Literal["contrastive", "cosent", "mse"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
FIRST_NAMES, SECOND_NAMES = ("anchor", "query", "premise"), ("positive", "pos", "entailment", "paraphrase")
NEGATIVE_NAMES = ("negative", "hardnegative", "neg", "contradiction")
POSITIVE_SHARE = 0.75  # of the range of scores: pairs from there on mean the same (STS-B: 3.75 of 5)


@dataclass(frozen=True)
class PairExample(TextExample):
    """Two texts that belong together, as `text` and `pair`; `label` is how much, if it is known."""

    negative: str | None = None  # a text like the second that does not belong to the first

    @property
    def score(self) -> float | None:
        """How alike the two are, on the file's own scale."""
        return self.label if isinstance(self.label, float) else None


@dataclass(frozen=True)
class PairColumns:
    """The names of columns; what is None is guessed."""

    first: str | None = None
    second: str | None = None
    score: str | None = None
    negative: str | None = None


@dataclass(frozen=True)
class PairTable:
    """All pairs of a file, and what was seen on the way."""

    examples: list[PairExample]
    guess: str
    problems: Problems

    def lines(self) -> list[str]:
        """For people: what was taken, and what was left out."""
        return [f"{self.problems.file}: {len(self.examples):,} pairs, {self.guess}", *self.problems.lines()]


def read_pairs(path: str | Path, columns: PairColumns | None = None, *, skip_bad: bool = False) -> PairTable:
    """All pairs of a file; a column of scores and one of negatives are found by their names."""
    asked = columns or PairColumns()
    table = open_table(path)
    plain = {plain_name(name): name for name in reversed(table.columns)}
    negative = asked.negative or next((plain[name] for name in NEGATIVE_NAMES if name in plain), None)
    if negative is not None and negative not in table.columns:
        raise BertkitError(f"{path} has no column {negative!r}; it has {', '.join(table.columns)}")
    free = [name for name in table.columns if name not in (negative, asked.score)]
    first, second = (
        given or next((plain[name] for name in names if name in plain), None)
        for given, names in ((asked.first, FIRST_NAMES), (asked.second, SECOND_NAMES))
    )
    if negative is not None and not (first and second) and len(free) >= 2:
        first, second = first or free[0], second or free[1]
    named = (first, second) if first and second else (asked.first, asked.second)
    options = TextOptions(*named, asked.score, problem="regression", labelled=False, skip_bad=skip_bad)
    source = TextSource(path, options)
    if source.columns.pair is None:
        names = ", ".join(repr(name) for name in table.columns)
        raise BertkitError(
            f"{path} has one column that is known as text ({source.columns.text!r}), and pairs need two: name both as "
            f"first and second, among {names}"
        )
    examples = [_with_negative(example, row.values.get(negative or "")) for row, example in source.rows()]
    if not examples:
        raise BertkitError(f"{path} has no pairs to use; {source.problems.count:,} rows were bad")
    told = f", hard negative = column {negative!r}" if negative else ""
    return PairTable(examples, source.columns.line(source.table) + told, source.problems)


def _with_negative(example: TextExample, negative: object) -> PairExample:
    text = negative if isinstance(negative, str) and negative.strip() else None
    return PairExample(example.text, example.pair, example.label, example.line, text)


def choose_loss(loss: str, examples: Sequence[PairExample]) -> Loss:
    """The loss of this name, or with `auto` the one that these pairs can teach by."""
    scored = all(example.score is not None for example in examples)
    if loss == "auto":
        return "cosent" if scored else "contrastive"
    if loss not in LOSSES:
        raise BertkitError(f"unknown loss {loss!r}; choose one of auto, {', '.join(LOSSES)}")
    if loss != "contrastive" and not scored:
        raise BertkitError(f"the loss {loss!r} needs a score for every pair; name its column, or use contrastive")
    return loss


def score_range(examples: Sequence[PairExample]) -> tuple[float, float]:
    """The lowest and the highest score."""
    scores = [example.score for example in examples if example.score is not None]
    if not scores or min(scores) == max(scores):
        raise BertkitError("the scores of the pairs do not differ, so there is nothing to learn from them")
    return min(scores), max(scores)


def positives(examples: Sequence[PairExample]) -> list[PairExample]:
    """Pairs that mean the same: all without scores, else those in the upper quarter of the scores' range."""
    if any(example.score is None for example in examples):
        return list(examples)
    low, high = score_range(examples)
    bound = low + POSITIVE_SHARE * (high - low)
    return [example for example in examples if example.score is not None and example.score >= bound]
