"""Rows that cannot be used: the first one stops the reading, or all of them are counted and named and left out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bertkit.errors import BertkitError
from bertkit.text.counted import counted
from bertkit.text.files import unpacking_errors
from bertkit.text.reports import MAX_NAMED, NUM_SHOWN, Problem


class BadRowError(Exception):
    """Why this row cannot be used, and what to do about it."""


@dataclass
class Problems:
    """What was left out of one file; by default nothing is, because the first bad row is an error."""

    file: str
    skip_bad: bool = False
    count: int = 0
    named: list[Problem] = field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        """Count and name a bad row, or stop at it."""
        problem = Problem(self.file, line, reason)
        if not self.skip_bad:
            raise BertkitError(f"{problem} (--skip-bad, in Python skip_bad, leaves such rows out)")
        self.count += 1
        if len(self.named) < MAX_NAMED:
            self.named.append(problem)

    def lines(self) -> list[str]:
        """For people: how many rows were left out, and the first few by name."""
        if not self.count:
            return []
        shown = [
            f"left out {counted(self.count, 'bad row')} of {self.file}",
            *(f"  {row}" for row in self.named[:NUM_SHOWN]),
        ]
        return shown if self.count <= NUM_SHOWN else [*shown, f"  and {self.count - NUM_SHOWN:,} more"]


@contextmanager
def whole_file(path: Path) -> Iterator[None]:
    """A damaged or cut file is one clear line."""
    try:
        yield
    except unpacking_errors(path) as error:
        raise BertkitError(f"{path}: cannot be read to its end ({error}); is it complete?") from None
