"""Lines of .csv and .tsv files -> records of cells (RFC 4180), with the line where each begins.

Quotes of a .csv file wrap cells, line breaks inside included; those of a .tsv file are literal, as in GLUE's files,
unless its first lines say clearly that they are not.
"""

import csv
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from bertkit.tasks.reading.problems import BadRowError
from bertkit.text.rows import MAX_ROW_BYTES

Quotes = Literal["auto", "literal", "wrap"]
Record = tuple[int, list[str] | BadRowError]
DELIMITERS = (",", ";", "\t", "|")
NUM_LOOKED_AT = 200
NEVER_CLOSED = "a quote opens here and is never closed; close it, or write it twice"


@dataclass(frozen=True)
class Dialect:
    """What separates cells, and whether quotes wrap them or are part of them."""

    delimiter: str = ","
    quoted: bool = True


def records(lines: Iterable[str], dialect: Dialect) -> Iterator[Record]:
    """Every record with the number of its first line; blank lines are none."""
    return _quoted(lines, dialect.delimiter) if dialect.quoted else _literal(lines, dialect.delimiter)


def _literal(lines: Iterable[str], delimiter: str) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        if text := line.removesuffix("\n").removesuffix("\r"):
            yield number, text.split(delimiter)


def _quoted(lines: Iterable[str], delimiter: str) -> Iterator[Record]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))
    source = _Lines(lines)
    while True:
        number = source.number
        try:
            cells = next(csv.reader(source, delimiter=delimiter, strict=True))
        except StopIteration:
            return
        except csv.Error as error:
            source.go_back()  # only the first line is bad for sure: a quote never closed must not eat all the others
            yield number, BadRowError(_reason(str(error)))
            continue
        source.go_on()
        if cells:
            yield number, cells


class _Lines:
    """Lines that can be taken again from the second line of the current record on."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.number = 1  # of the line where the current record begins
        self._lines, self._again = iter(lines), deque[str]()
        self._taken: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self._taken.append(self._again.popleft() if self._again else next(self._lines))
        return self._taken[-1]

    def go_on(self) -> None:
        self.number += len(self._taken)
        self._taken = []

    def go_back(self) -> None:
        self._again.extendleft(reversed(self._taken[1:]))
        self.number += 1
        self._taken = []


def _reason(error: str) -> str:
    if "end of data" in error or "field limit" in error:
        return NEVER_CLOSED
    if "expected after" in error:
        return "a quote stands inside a quoted cell; write it twice"
    return f"no valid csv ({error}); quote this cell"


def guess_dialect(kind: str, sample: Sequence[str], quotes: Quotes = "auto") -> Dialect:
    """How the first lines of a file are laid out."""
    if kind == "csv":
        quoted = quotes != "literal"
        return Dialect(_guess_delimiter(sample, quoted), quoted)
    return Dialect("\t", _quotes_wrap(sample) if quotes == "auto" else quotes == "wrap")


def _guess_delimiter(sample: Sequence[str], quoted: bool) -> str:
    """The one that cuts most records into as many cells as the first; a comma if none does."""
    shares = {delimiter: _agreement(sample, Dialect(delimiter, quoted)) for delimiter in DELIMITERS}
    best = max(shares, key=lambda delimiter: shares[delimiter])
    return best if shares[best] > 0.5 else ","


def _agreement(sample: Sequence[str], dialect: Dialect) -> float:
    found = [cells for _, cells in islice(records(sample, dialect), NUM_LOOKED_AT) if isinstance(cells, list)]
    if not found or len(found[0]) < 2:
        return 0.0
    return Counter(map(len, found))[len(found[0])] / len(found)


def _quotes_wrap(sample: Sequence[str]) -> bool:
    """Whether quotes hold something that only wrapped cells can hold, or wrap all names, and nothing speaks against it."""
    if not any('"' in line for line in sample):
        return False
    # Where every line has as many cells, a quote that opens in one and closes in another holds no rows together.
    is_ragged = len({line.count("\t") for line in sample if line.strip()}) > 1
    widths, is_clear = set(), _all_quoted(sample[0])
    for number, cells in records(sample, Dialect("\t", quoted=True)):
        if isinstance(cells, BadRowError):
            if str(cells) == NEVER_CLOSED:
                break  # the sample may end inside this record: what stands before it decides
            return False
        widths.add(len(cells))
        is_clear |= is_ragged and any("\t" in cell or "\n" in cell for cell in cells)
        is_clear |= any(_doubled(cell, sample[number - 1]) for cell in cells)
    return is_clear and len(widths) == 1


def _doubled(cell: str, line: str) -> bool:
    """A quote inside this cell was written twice, in a line that wraps the cell."""
    return '"' in cell and '"' + cell.replace('"', '""') + '"' in line


def _all_quoted(header: str) -> bool:
    cells = header.rstrip("\r\n").split("\t")
    return all(len(cell) > 2 and cell[0] == cell[-1] == '"' for cell in cells)
