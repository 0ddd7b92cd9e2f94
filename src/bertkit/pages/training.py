"""The page of a pre-training run: its curves on training and held-out text, its speed and its recipe.

In: a TrainingReport made from the run's journal. Out: HTML. Nothing on the page comes from elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertkit.pages.frame import fill, frame


@dataclass(frozen=True)
class TrainingPoint:
    """The journal's figures at one step."""

    step: int
    loss: float
    mlm_loss: float
    nsp_loss: float
    mlm_accuracy: float
    nsp_accuracy: float
    learning_rate: float
    grad_norm: float
    tokens_per_second: float
    flops_per_second: float


@dataclass(frozen=True)
class TrainingReport:
    """Everything that the page shows."""

    name: str
    num_parameters: int
    num_layers: int
    hidden_size: int
    num_heads: int
    vocab_size: int
    num_steps: int
    num_tokens: int
    seconds: float  # of training steps
    device: str
    steps: Sequence[TrainingPoint]
    evaluations: Sequence[Mapping[str, Any]]  # the journal's; old_* where a former domain was measured
    recipe: str
    unigram_loss: float | None = None  # held-out loss of always guessing by frequency

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self)


def training_page(report: TrainingReport) -> str:
    """The page of one run."""
    label = f"{report.name}: {report.num_parameters:,} parameters, {report.num_steps:,} steps, {report.num_tokens:,} tokens."
    return frame("How this BERT was trained", label, fill("training", chart=fill("chart")), report.to_json())
