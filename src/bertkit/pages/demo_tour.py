"""The page of `bertkit demo`: what the bundled models said, and how one of them was taught a new task.

In: a TourReport of plain figures, all from one run. Out: HTML. Nothing on the page comes from elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from bertkit.pages.attention import Attention, attention_body, attention_json
from bertkit.pages.demo import Guess, PairExample
from bertkit.pages.finetuning import DevPoint, LossPoint, Mark
from bertkit.pages.frame import Html, fill, frame


@dataclass(frozen=True)
class LoadedModel:
    """A model, its size, and how long it took to load."""

    name: str
    num_parameters: int
    megabytes: float  # on disk
    seconds: float


@dataclass(frozen=True)
class Blank:
    """A text with a [MASK], and the best tokens for it."""

    text: str
    guesses: Sequence[Guess]


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question and its answer: passage[start:end] == text."""

    question: str
    text: str
    start: int
    end: int
    confidence: float


@dataclass(frozen=True)
class MarkedText:
    """A text with its entities marked."""

    text: str
    marks: Sequence[Mark]


@dataclass(frozen=True)
class UsedModels:
    """What the models said as they came."""

    models: Sequence[LoadedModel]
    blanks: Sequence[Blank]
    words: Mapping[str, Any]  # WordComparison.to_json()
    next_sentence: Sequence[PairExample]
    passage: str
    answers: Sequence[AnsweredQuestion]
    entities: Sequence[MarkedText]
    attention: Attention


@dataclass(frozen=True)
class Judged:
    """A held-out sentence, its label, and what the fine-tuned model said."""

    text: str
    label: str
    said: str
    confidence: float


@dataclass(frozen=True)
class TaughtModel:
    """Fine-tuning on the sample sentences, and the held-out ones."""

    base: str
    num_train: int
    num_dev: int
    seconds: float  # of training
    losses: Sequence[LossPoint]
    evaluations: Sequence[DevPoint]
    metric: str
    accuracy: float  # on the held-out sentences
    others: Mapping[str, float]  # what simpler or other models reach on them
    judged: Sequence[Judged]  # every held-out sentence


@dataclass(frozen=True)
class TourReport:
    """Everything that the page shows."""

    used: UsedModels
    taught: TaughtModel
    versions: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Plain types; the attention in the form that the page reads."""
        used = {field.name: getattr(self.used, field.name) for field in fields(self.used)}
        attention = attention_json(used.pop("attention"))
        for name in ("models", "blanks", "next_sentence", "answers", "entities"):
            used[name] = [asdict(row) for row in used[name]]
        return {**used, "taught": asdict(self.taught), "attention": attention, "versions": dict(self.versions)}


def tour_page(report: TourReport) -> str:
    """The page of one run."""
    names = ", ".join(model.name for model in report.used.models)
    body = Html(fill("demo_tour", chart=fill("chart")) + attention_body("data.attention"))
    return frame("BERT at work", f"Models that come with bertkit: {names}.", body, report.to_json())
