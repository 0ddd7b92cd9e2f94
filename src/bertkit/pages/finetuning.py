"""The page of a fine-tuned model: how it learned, how good it is and beside what, and where it is wrong.

In: a FinetuningReport of plain figures. Out: HTML. Nothing on the page comes from elsewhere. Scores are in 0 to 1
(correlations in -1 to 1), as the metrics give them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import mean, stdev
from typing import Any

from bertkit.pages.frame import fill, frame


@dataclass(frozen=True)
class LossPoint:
    """The training loss at one step."""

    step: int
    loss: float


@dataclass(frozen=True)
class DevPoint:
    """The scores on the development set after one step."""

    step: int
    scores: Mapping[str, float]
    loss: float | None = None


@dataclass(frozen=True)
class ClassRow:
    """How well one class or one kind of entity was found."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Run:
    """One run of several: a seed, or a cell of a grid. What collapsed is listed, and left out of the means."""

    settings: Mapping[str, Any]  # with its seed
    scores: Mapping[str, float]
    collapsed: str = ""  # why it counts as collapsed, and with which seed it was started again
    is_chosen: bool = False


@dataclass(frozen=True)
class Mark:
    """A marked part of a text, in characters: an entity or an answer."""

    start: int
    end: int
    label: str = ""


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction with its text; of a question, the context is the text and the question stands before it."""

    text: str
    gold: str
    predicted: str
    place: str = ""  # "line 12", or a question's id
    pair: str = ""
    question: str = ""
    confidence: float | None = None
    loss: float | None = None
    gold_marks: Sequence[Mark] = ()
    predicted_marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class DataFile:
    """One split: where it came from, and what happened to it on the way in."""

    name: str  # train, dev, test
    file: str  # the file's name without its folders
    num_examples: int
    num_cut: int = 0  # examples that lost their end
    num_windowed: int = 0  # examples that were read in several windows
    num_left_out: int = 0  # bad rows
    classes: Mapping[str, int] = field(default_factory=dict)  # how often each class comes


@dataclass(frozen=True)
class FinetuningReport:
    """Everything that the page and the card show."""

    name: str
    task: str  # classification, regression, tagging, question answering
    base: str  # the checkpoint that it started from
    num_parameters: int
    metric: str  # the score by which the best checkpoint was chosen
    data: Sequence[DataFile]
    scores: Mapping[str, float]  # of the model that was kept, on the development set
    labels: Sequence[str] = ()
    baseline: str = ""  # what it is, in words
    baseline_scores: Mapping[str, float] = field(default_factory=dict)
    majority_scores: Mapping[str, float] = field(
        default_factory=dict
    )  # of always saying the most frequent class or tag, or no answer
    losses: Sequence[LossPoint] = ()
    evaluations: Sequence[DevPoint] = ()
    confusion: Sequence[Sequence[int]] = ()  # [true, predicted], in the labels' order
    classes: Sequence[ClassRow] = ()
    runs: Sequence[Run] = ()
    mistakes: Sequence[Mistake] = ()
    num_mistakes: int | None = None  # in all; those above are the worst
    notes: Sequence[str] = ()  # duplicates between splits, collapsed runs, texts that were cut: one line each
    settings: str = ""  # the resolved settings, as TOML
    seconds: float = 0.0
    device: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain types, and the means of the runs."""
        return {**asdict(self), "summaries": [asdict(row) for row in summarize(self.runs, self.metric)]}


@dataclass(frozen=True)
class Summary:
    """Runs that differ in their seed alone."""

    settings: Mapping[str, Any]
    num_runs: int  # that did not collapse
    num_collapsed: int
    mean: float | None = None
    spread: float | None = None  # the standard deviation, of two runs and more
    lowest: float | None = None
    highest: float | None = None


def summarize(runs: Sequence[Run], metric: str) -> list[Summary]:
    """The mean and spread of every setting over its seeds, the best first."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(repr(_without_seed(run)), []).append(run)
    found = [_summary(group, metric) for group in groups.values()]
    return sorted(found, key=lambda row: -1e9 if row.mean is None else row.mean, reverse=True)


def _without_seed(run: Run) -> dict[str, Any]:
    return {name: value for name, value in run.settings.items() if name != "seed"}


def _summary(runs: Sequence[Run], metric: str) -> Summary:
    scores = [run.scores[metric] for run in runs if not run.collapsed and metric in run.scores]
    settings, num_collapsed = _without_seed(runs[0]), sum(bool(run.collapsed) for run in runs)
    if not scores:
        return Summary(settings, 0, num_collapsed)
    spread = stdev(scores) if len(scores) > 1 else None
    return Summary(settings, len(scores), num_collapsed, mean(scores), spread, min(scores), max(scores))


def finetuning_page(report: FinetuningReport) -> str:
    """The page of one model."""
    train = next((split.num_examples for split in report.data if split.name == "train"), 0)
    label = f"{report.name}: {report.task} on {report.base}, {report.num_parameters:,} parameters, {train:,} examples."
    body = fill("finetuning", chart=fill("chart"))
    return frame("How this BERT was fine-tuned", label, body, report.to_json())
