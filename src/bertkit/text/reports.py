"""What reading met: counts of what was read, and every line or row that could not be, with its place and the reason.

Reading never stops at a broken line and never hides it. Reports of several files or processes add up.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from bertkit.text.counted import counted

MAX_NAMED = 1000  # problems kept by name; all are counted, and `on_problem` sees all
NUM_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """A line or row that was left out; line 0 is the file as a whole."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}{f', line {self.line}' if self.line else ''}: {self.reason}"


@dataclass
class ReadReport:
    """Counts of what was read and what was not; filled while documents are drawn from `read_documents`."""

    num_files: int = 0
    num_documents: int = 0
    num_paragraphs: int = 0
    num_characters: int = 0
    num_empty: int = 0  # rows without any text
    num_parts: int = 0  # documents or lines too long for one piece of memory, given in parts
    reasons: Counter[str] = field(default_factory=Counter)
    named: list[Problem] = field(default_factory=list)
    on_problem: Callable[[Problem], None] | None = field(default=None, repr=False, compare=False)

    @property
    def num_problems(self) -> int:
        """How many lines, rows or files were left out."""
        return self.reasons.total()

    @property
    def why_nothing(self) -> str:
        """For an error where nothing is left to use: what was left out, if anything was."""
        left_out = counted(self.num_problems, "line or row was", "lines or rows were")
        return f": {left_out} left out, the first: {self.named[0]}" if self.named else ""

    def add_problem(self, file: str, line: int, reason: str) -> None:
        """Count and name what was left out."""
        problem = Problem(file, line, reason)
        self.reasons[reason] += 1
        if len(self.named) < MAX_NAMED:
            self.named.append(problem)
        if self.on_problem is not None:
            self.on_problem(problem)

    def merge(self, other: "ReadReport") -> None:
        """Add what another file's or process's report counted."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.reasons.update(other.reasons)
        self.named += other.named[: MAX_NAMED - len(self.named)]

    def to_json(self) -> dict[str, Any]:
        """Everything, for programs; `from_json` reads it back."""
        counts = {name: getattr(self, name) for name in COUNTS}
        return {**counts, "reasons": dict(self.reasons), "named": [asdict(problem) for problem in self.named]}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "ReadReport":
        """A report that `to_json` wrote."""
        named = [Problem(**problem) for problem in stored["named"]]
        return cls(**{name: stored[name] for name in COUNTS}, reasons=Counter(stored["reasons"]), named=named)

    def lines(self) -> list[str]:
        """For people: one line of counts, then what was left out, by reason and the first few by name."""
        shown = [
            f"read {counted(self.num_files, 'file')}: {counted(self.num_documents, 'document')}, "
            f"{counted(self.num_paragraphs, 'paragraph')}, {counted(self.num_characters, 'character')}"
        ]
        if self.num_empty:
            shown.append(counted(self.num_empty, "row has no text", "rows have no text"))
        if self.num_parts:
            times = counted(self.num_parts, "time")
            shown.append(f"{times} a document or line was too long and was given in parts, each a document")
        shown += [f"left out {count:,}: {reason}" for reason, count in sorted(self.reasons.items())]
        shown += [f"  {problem}" for problem in self.named[:NUM_SHOWN]]
        if self.num_problems > NUM_SHOWN:
            shown.append(f"  and {self.num_problems - min(len(self.named), NUM_SHOWN):,} more")
        return shown


COUNTS = ("num_files", "num_documents", "num_paragraphs", "num_characters", "num_empty", "num_parts")
