"""The page of the paper's findings, run again: one study or many, to be compared by eye, pointer and keys.

In: a StudyFigures of plain figures for each study. Out: HTML. Nothing on the page comes from elsewhere. Means, spreads
and verdicts come ready made; the page draws, sorts out what is shown, and lets the reader guess first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertkit.errors import BertkitError
from bertkit.pages.frame import fill, frame

MOST_ARMS = 40  # a table and its toggles can be read up to here
SCALES = {"minutes": "two CPU cores, about ten minutes a study", "gpu": "one H200, minutes a study"}


@dataclass(frozen=True)
class StudyFigures:
    """Everything that the page shows of one study."""

    name: str
    scale: str
    question: str
    claim: str
    paper: Sequence[Mapping[str, Any]]  # source, columns, rows of {label, values, arm}
    arms: Sequence[Mapping[str, Any]]  # name, label, settings as one line
    baseline: str
    measures: Sequence[Mapping[str, Any]]  # name, unit, lower_is_better, decimals
    cells: Mapping[str, Mapping[str, Mapping[str, Any]]]  # arm -> measure -> mean, spread, values, verdicts
    curves: Sequence[Mapping[str, Any]] = ()  # arm, measure, x_name, unit, lower_is_better, points of {x, values}
    tables: Sequence[Mapping[str, Any]] = ()  # title, columns, rows
    agreement: Sequence[str] = ()  # paragraphs
    in_short: str = ""  # how many differences go the paper's way
    comparison: Mapping[str, Any] | None = None  # title, columns, rows: the paper's differences and ours
    course: Mapping[str, Any] | None = None  # likewise: differences along the runs
    remark: str = ""
    notes: Sequence[str] = ()
    command: str = ""
    about: Sequence[tuple[str, str]] = ()
    test: str = ""

    def __post_init__(self) -> None:
        if len(self.arms) > MOST_ARMS:
            raise BertkitError(f"study {self.name} has {len(self.arms)} arms; a page can show {MOST_ARMS}")


def _scales(studies: Sequence[StudyFigures]) -> list[str]:
    return list(dict.fromkeys(study.scale for study in studies))


def study_page(studies: Sequence[StudyFigures]) -> str:
    """One page for all studies given, in their order."""
    if not studies:
        raise BertkitError("there are no results to show; run `bertkit study` first")
    scales = ", ".join(f"{one} ({SCALES[one]})" if one in SCALES else one for one in _scales(studies))
    label = f"{len(studies)} {'study' if len(studies) == 1 else 'studies'}, at the scale: {scales}."
    body = fill("study", chart=fill("chart"))
    return frame("Why BERT works: its findings, run again", label, body, {"studies": [asdict(one) for one in studies]})
