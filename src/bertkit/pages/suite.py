"""The page of the evaluation suite: one model on everything, beside published models.

In: a SuiteReport of plain figures. Out: HTML. Nothing on the page comes from elsewhere. Scores are in 0 to 1, published
ones times 100.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertkit.pages.frame import fill, frame


@dataclass(frozen=True)
class SuiteReport:
    """Everything that the page shows; a part that was not measured is None, or says why it was skipped."""

    model: Mapping[str, Any]
    average: float | None  # of the five tasks, times 100
    five: Sequence[str]
    published: Sequence[Mapping[str, Any]]
    published_blimp: Mapping[str, float]
    tasks: Sequence[Mapping[str, Any]]
    held_out: Mapping[str, Any] | None = None
    blimp: Mapping[str, Any] | None = None
    word_in_context: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()
    settings: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self)


def suite_page(report: SuiteReport) -> str:
    """The page of one model."""
    model = report.model
    label = (
        f"{model['name']}: {model['num_parameters']:,} parameters, {model['num_layers']} layers, "
        f"{model['hidden_size']} wide, {model['vocab_size']:,} tokens."
    )
    return frame("How good this BERT is", label, fill("suite"), report.to_json())
