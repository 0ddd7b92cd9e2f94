"""Files of labelled texts (csv, tsv, jsonl, parquet; packed too) -> TextExamples, for classification and regression.

What enters: a path, and perhaps the names of its columns. What leaves: examples one at a time or as a TextTable, with
the line that says which columns were taken. A bad row is an error with its line, or is left out, counted and named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from bertkit.errors import BertkitError
from bertkit.tasks.reading.columns import Columns, choose_columns
from bertkit.tasks.reading.delimited import Quotes
from bertkit.tasks.reading.examples import TextExample
from bertkit.tasks.reading.labels import ProblemType, guess_problem, is_gap, parse_label
from bertkit.tasks.reading.lines import check_unicode
from bertkit.tasks.reading.problems import BadRowError, Problems
from bertkit.tasks.reading.tables import Row, Table, open_table


@dataclass(frozen=True)
class TextOptions:
    """How a file of texts is read; what is None is guessed."""

    text: str | None = None  # names of columns; numbers from 1 where there is no header
    pair: str | None = None
    label: str | None = None
    problem: ProblemType | None = None
    labels: Sequence[str] | None = None  # the only ones that may come
    labelled: bool = True  # False: labels may be missing, as in texts to predict
    header: bool | None = None
    quotes: Quotes = "auto"
    skip_bad: bool = False

    def __post_init__(self) -> None:
        for name, known in (("problem", (None, *get_args(ProblemType))), ("quotes", get_args(Quotes))):
            if (value := getattr(self, name)) not in known:
                raise BertkitError(f"{name} is {value!r}; choose one of {', '.join(filter(None, known))}")
        if self.pair is not None and self.text is None:
            raise BertkitError(
                f"the second text is named ({self.pair!r}) and the first is not; name both, the first too"
            )


@dataclass(frozen=True)
class TextTable:
    """All examples of a file, and what was seen on the way."""

    examples: list[TextExample]
    columns: Columns
    problem: ProblemType
    problems: Problems
    guess: str  # which columns were taken, for people

    def lines(self) -> list[str]:
        """For people: what was taken, and what was left out."""
        return [f"{self.problems.file}: {len(self.examples):,} examples, {self.guess}", *self.problems.lines()]


class TextSource:
    """A file of texts, to be read as often as wanted, a row at a time."""

    def __init__(self, path: str | Path, options: TextOptions | None = None) -> None:
        self.options = options = options or TextOptions()
        self.table: Table = open_table(path, header=options.header, quotes=options.quotes)
        sample = self.table.sample()
        given = Columns(options.text or "", options.pair, options.label)
        self.columns = choose_columns(self.table, sample, given, labelled=options.labelled)
        self.problem: ProblemType = options.problem or self._guess_problem(sample)
        self.problems = Problems(str(path), options.skip_bad)

    def _guess_problem(self, sample: Sequence[Row]) -> ProblemType:
        if self.columns.label is None or self.options.labels is not None:
            return "single_label"
        return guess_problem([row.values.get(self.columns.label) for row in sample])

    @property
    def guess(self) -> str:
        """Which columns are taken, and as what."""
        kinds = {"single_label": "one class each", "multi_label": "any number of classes", "regression": "a number"}
        what = f"; a label is {kinds[self.problem]}" if self.columns.label else ""
        return self.columns.line(self.table) + what

    @cached_property
    def known(self) -> frozenset[str] | None:
        """The labels that may come."""
        return None if self.options.labels is None else frozenset(self.options.labels)

    def __iter__(self) -> Iterator[TextExample]:
        return (example for _, example in self.rows())

    def rows(self) -> Iterator[tuple[Row, TextExample]]:
        """Every good row with its example; reading anew counts problems anew."""
        self.problems = Problems(self.problems.file, self.options.skip_bad)
        for row in self.table.rows(self.problems):
            try:
                example = self._example(row)
            except BadRowError as error:
                self.problems.add(row.line, str(error))
            else:
                yield row, example

    def _example(self, row: Row) -> TextExample:
        columns, values = self.columns, row.values
        text = cell_text(values.get(columns.text), columns.text)
        if not text.strip():
            raise BadRowError(f"the text (column {columns.text!r}) is empty; fill it in, or take the row out")
        pair = None if columns.pair is None else cell_text(values.get(columns.pair), columns.pair)
        return TextExample(text, pair, self._label(values.get(columns.label) if columns.label else None), row.line)

    def _label(self, value: Any) -> Any:
        is_missing = is_gap(value) or (isinstance(value, str) and not value.strip())
        if is_missing and not self.options.labelled:
            return None
        if is_gap(value) and self.problem == "multi_label":
            raise BadRowError("the label is missing; write an empty list for no class")
        return parse_label(value, self.problem, self.known)


def cell_text(value: Any, column: str) -> str:
    """A cell that must hold text; an empty one is an empty text."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="surrogateescape")
    if not isinstance(value, str):
        raise BadRowError(f"column {column!r} holds {type(value).__name__}, not text; name another column")
    return check_unicode(value)


def read_texts(path: str | Path, options: TextOptions | None = None) -> TextTable:
    """All examples of a file."""
    source = TextSource(path, options)
    examples = list(source)
    if not examples:
        bad = source.problems.count
        why = (
            f"all {bad:,} were bad; mend them" if bad else "there is nothing below its header; give one example a line"
        )
        raise BertkitError(f"{path} has no rows to use: {why}")
    return TextTable(examples, source.columns, source.problem, source.problems, source.guess)
