"""What a study has found: the contract between those who run studies and those who show them.

A study asks one question, compares arms (settings that differ in one thing), and measures each with several seeds. The
paper's own rows stand beside. result.json holds all of it; means, spreads and tests are computed when they are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, quantiles, stdev
from typing import Any

from bertkit.errors import BertkitError
from bertkit.studies.study.noise import TEST_NAME, Difference, compare_drawn, compare_groups, visible_difference
from bertkit.studies.suite_parts import read_json, write_json
from bertkit.training.toml_text import to_dataclass, to_plain

RESULT = "result.json"


@dataclass(frozen=True)
class Measure:
    """Something that every arm is measured by. Scores of tasks are stored times 100."""

    name: str  # unique in a study: "SST-2 accuracy", "held-out perplexity"
    unit: str = ""  # "points", "nats", "%", "tokens/s": for axes and heads of tables
    lower_is_better: bool = False
    decimals: int = 1


@dataclass(frozen=True)
class Arm:
    """One of the settings that are compared."""

    name: str  # unique in a study, short: "ltr"
    label: str  # for people: "left to right"
    settings: dict[str, Any] = field(default_factory=dict)  # in which it differs from the others


@dataclass(frozen=True)
class Score:
    """One value of one run."""

    arm: str
    measure: str
    seed: int
    value: float


@dataclass(frozen=True)
class Draws:
    """One measure of one arm on bootstrap draws of the examples: the noise where no run can be repeated.

    Draws of one study are paired: the same place is the same draw in every arm.
    """

    arm: str
    measure: str
    values: tuple[float, ...]

    @property
    def interval(self) -> tuple[float, float]:
        """In which 95 % of the draws lie."""
        cuts = quantiles(self.values, n=40, method="inclusive")
        return cuts[0], cuts[-1]


@dataclass(frozen=True)
class Point:
    """A place of a curve."""

    x: float
    values: dict[str, float]  # by seed (as text, since JSON's keys are)

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return fmean(self.values.values())


@dataclass(frozen=True)
class Curve:
    """One measure of one arm along a run."""

    arm: str
    measure: str  # a name; it need not be among the result's measures
    points: tuple[Point, ...]
    x_name: str = "steps"
    unit: str = ""
    lower_is_better: bool = False


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's table; `arm` names ours that it corresponds to, where one does."""

    label: str
    values: dict[str, float]  # by column
    arm: str = ""


@dataclass(frozen=True)
class PaperTable:
    """What the paper measured."""

    source: str  # "table 5 of the paper"
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]


@dataclass(frozen=True)
class TextTable:
    """Anything else that is worth showing, ready to print; the head of a column of numbers begins with #."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Summary:
    """One measure of one arm over its seeds, or over draws of the examples."""

    mean: float
    spread: float  # sample standard deviation of the seeds, or of draws; 0 of one run
    num_seeds: int
    interval: tuple[float, float] | None = None  # 95 %, where examples were drawn again

    @property
    def has_spread(self) -> bool:
        """Whether something was repeated."""
        return self.num_seeds > 1 or self.interval is not None


@dataclass(frozen=True)
class StudyResult:
    """All that a study has found; frozen, plain, and written as it stands."""

    name: str
    scale: str  # minutes, gpu
    question: str  # one sentence
    claim: str  # what the paper found, one or two sentences
    paper: tuple[PaperTable, ...]
    arms: tuple[Arm, ...]
    baseline: str  # the arm that the others are compared with
    measures: tuple[Measure, ...]
    scores: tuple[Score, ...]
    curves: tuple[Curve, ...] = ()
    tables: tuple[TextTable, ...] = ()
    notes: tuple[str, ...] = ()  # what this scale can and cannot show; what was cut or is not done
    agreement: tuple[str, ...] = ()  # paragraphs of a study that the signs of differences do not speak for
    remark: str = ""  # a paragraph written by hand, kept in the study's recipe
    command: str = ""  # that makes it
    about: dict[str, Any] = field(default_factory=dict)  # device, versions, minutes
    draws: tuple[Draws, ...] = ()  # of arms whose noise is that of the examples
    test: str = TEST_NAME

    def __post_init__(self) -> None:
        arms, measures = {arm.name for arm in self.arms}, {measure.name for measure in self.measures}
        if len(arms) < len(self.arms) or len(measures) < len(self.measures):
            raise BertkitError(f"study {self.name}: two arms or two measures have the same name")
        if self.baseline not in arms:
            raise BertkitError(f"study {self.name}: no arm is named {self.baseline!r}, the baseline")
        for score in self.scores:
            if score.arm not in arms or score.measure not in measures:
                raise BertkitError(
                    f"study {self.name}: a score of unknown arm or measure: {score.arm}, {score.measure}"
                )
        if len({(score.arm, score.measure, score.seed) for score in self.scores}) < len(self.scores):
            raise BertkitError(f"study {self.name}: an arm has two scores of one measure with one seed")
        if unknown := {curve.arm for curve in self.curves} - arms:
            raise BertkitError(f"study {self.name}: a curve of unknown arm: {', '.join(sorted(unknown))}")

    def values(self, arm: str, measure: str) -> tuple[float, ...]:
        """Of every seed, in the order of the seeds."""
        found = [score for score in self.scores if (score.arm, score.measure) == (arm, measure)]
        return tuple(score.value for score in sorted(found, key=lambda score: score.seed))

    def summary(self, arm: str, measure: str) -> Summary | None:
        """Mean and spread; None where nothing was measured."""
        values = self.values(arm, measure)
        if not values:
            return None
        if drawn := self._drawn(arm, measure):
            return Summary(fmean(values), stdev(drawn.values), len(values), drawn.interval)
        return Summary(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))

    def difference(self, arm: str, measure: str, other: str | None = None) -> Difference | None:
        """This arm's mean minus another's (the baseline's unless said), and whether it is outside the noise."""
        base = other or self.baseline
        ours, theirs = self.values(arm, measure), self.values(base, measure)
        if not ours or not theirs:
            return None
        drawn, beside = self._drawn(arm, measure), self._drawn(base, measure)
        if drawn and beside:
            differences = [one - other for one, other in zip(drawn.values, beside.values, strict=True)]
            return compare_drawn(fmean(ours) - fmean(theirs), differences)
        return compare_groups(ours, theirs)

    def _drawn(self, arm: str, measure: str) -> Draws | None:
        return next((one for one in self.draws if (one.arm, one.measure) == (arm, measure)), None)

    def visible_difference(self, arm: str, measure: str) -> float | None:
        """How large a difference from the baseline would have been called outside the noise, by these spreads."""
        return visible_difference(self.values(arm, measure), self.values(self.baseline, measure))

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "StudyResult":
        """Checked as it is made."""
        return to_dataclass(cls, dict(plain))

    def write(self, folder: Path) -> Path:
        """Into result.json of this folder."""
        write_json(folder / RESULT, self.to_json())
        return folder / RESULT


def read_result(path: str | Path) -> StudyResult:
    """A study's result.json, or that of the folder named."""
    found = Path(path)
    file = found / RESULT if found.is_dir() else found
    if not file.is_file():
        raise BertkitError(f"{file} is not there; run `bertkit study` with -o {found} first")
    return StudyResult.from_json(read_json(file))
