"""Files of sentence pairs -> PairExamples: with a score (STS-B), as paraphrases alone, or with a hard negative beside.

In: a csv, tsv, jsonl or parquet file and perhaps the names of its columns. Out: pairs, and what they can teach.
No torch here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from bertkit.errors import BertkitError
from bertkit.tasks.reading.examples import TextExample
from bertkit.tasks.reading.headers import LABEL_NAMES, PAIR_NAMES, plain_name
from bertkit.tasks.reading.problems import BadRowError, Problems
from bertkit.tasks.reading.tables import open_table
from bertkit.tasks.reading.texts import TextOptions, TextSource, cell_text

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
    first, second = (
        given or next((plain[name] for name in names if name in plain), None)
        for given, names in ((asked.first, FIRST_NAMES), (asked.second, SECOND_NAMES))
    )
    if negative is not None and not (first and second):
        first, second = _beside_negative(table.columns, plain, (first, second), (negative, asked.score))
    named = (first, second) if first and second else (asked.first, asked.second)
    options = TextOptions(*named, asked.score, problem="regression", labelled=False, skip_bad=skip_bad)
    source = TextSource(path, options)
    if source.columns.pair is None:
        names = ", ".join(repr(name) for name in table.columns)
        raise BertkitError(
            f"{path} has one column that is known as text ({source.columns.text!r}), and pairs need two: name both as "
            f"first and second, among {names}"
        )
    examples = _pairs(source, negative)
    if not examples:
        raise BertkitError(f"{path} has no pairs to use; {source.problems.count:,} rows were bad")
    told = f", hard negative = column {negative!r}" if negative else ""
    return PairTable(examples, source.columns.line(source.table) + told, source.problems)


def _beside_negative(
    columns: Sequence[str], plain: Mapping[str, str], found: tuple[str | None, str | None], taken: Sequence[str | None]
) -> tuple[str | None, str | None]:
    """The two texts beside a negative: by names that go together, else the first columns that are free."""
    known = ((plain[a], plain[b]) for a, b in PAIR_NAMES if a in plain and b in plain)
    fitting = (two for two in known if all(name in (None, other) for name, other in zip(found, two, strict=True)))
    first, second = next(fitting, found)
    taken = (*taken, first, second, *(plain[name] for name in LABEL_NAMES if name in plain))
    free = [name for name in columns if name not in taken]
    if len(free) < (first is None) + (second is None):
        return found
    return first or free.pop(0), second or free.pop(0)


def _pairs(source: TextSource, negative: str | None) -> list[PairExample]:
    """Every whole pair; if any has a score, one without is a bad row, or it would count as meaning the same."""
    found: list[PairExample] = []
    for row, example in source.rows():
        try:
            found.append(_pair(example, row.values, negative))
        except BadRowError as error:
            source.problems.add(row.line, str(error))
    if all(example.score is None for example in found):
        return found
    for example in found:
        if example.score is None:
            source.problems.add(example.line or 0, "the score is missing, and other pairs have one; fill it in")
    return [example for example in found if example.score is not None]


def _pair(example: TextExample, values: Mapping[str, Any], negative: str | None) -> PairExample:
    if not (example.pair or "").strip():
        raise BadRowError("the second text is empty; fill it in, or take the row out")
    text = cell_text(values.get(negative), negative) if negative else ""
    return PairExample(example.text, example.pair, example.label, example.line, text if text.strip() else None)


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
    """Pairs that mean the same: those without scores, and those in the upper quarter of the scores' range."""
    if all(example.score is None for example in examples):
        return list(examples)
    low, high = score_range(examples)
    bound = low + POSITIVE_SHARE * (high - low)
    return [example for example in examples if example.score is None or example.score >= bound]
