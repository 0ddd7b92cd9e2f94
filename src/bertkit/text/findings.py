"""What a check of data, model or machine says: how bad it is, the figure behind it, and what to do.

`bertkit doctor` is a list of these. Every room that can look at something makes its own.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Level = Literal["ok", "warning", "problem"]
LEVELS: tuple[Level, ...] = ("ok", "warning", "problem")


@dataclass(frozen=True)
class Finding:
    """The answer of one check."""

    check: str  # its name, also for --accept
    level: Level
    figure: str  # what was measured, in a sentence
    advice: str = ""  # what to do; empty where nothing is to be done
    values: Mapping[str, Any] = field(default_factory=dict)  # the same figures for programs

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {**self.__dict__, "values": finite_or_null(self.values)}


def finite_or_null(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become null."""
    if isinstance(value, Mapping):
        return {name: finite_or_null(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_null(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def grade(value: float, *, warning: float, problem: float) -> Level:
    """A value that is worse the higher it is."""
    return "problem" if value >= problem else "warning" if value >= warning else "ok"


def worst(levels: Iterable[Level]) -> Level:
    """The worst of several."""
    return max(levels, key=LEVELS.index, default="ok")


def accept(findings: Iterable[Finding], names: Iterable[str]) -> list[Finding]:
    """The problems of these checks are known and meant: they become warnings."""
    known = set(names)
    return [
        replace(finding, level="warning", advice=f"(accepted) {finding.advice}")
        if finding.check in known and finding.level == "problem"
        else finding
        for finding in findings
    ]
