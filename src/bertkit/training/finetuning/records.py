"""What a fine-tuning run is given, what it remembers, and how it is told: plain figures, kept in checkpoints too."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bertkit.tasks.predicting import Chunk
from bertkit.tasks.task import Task
from bertkit.training.journal import memory_bytes
from bertkit.training.loss_loop import LossRecord
from bertkit.training.stepping import Progress


class Watcher(Protocol):
    """Somebody who watches a run."""

    def on_step(self, values: dict[str, Any], progress: Progress) -> None:
        """New figures of the last steps."""

    def on_evaluation(self, values: dict[str, Any]) -> None:
        """New figures on the development set."""

    def on_note(self, line: str) -> None:
        """Something that people should know."""


@dataclass(frozen=True)
class TaskData:
    """A task with its examples, encoded once for however many runs."""

    task: Task[Any, Any]
    train: Sequence[Chunk[Any]]
    dev: Sequence[Chunk[Any]] = ()

    @property
    def num_train(self) -> int:
        """Training examples."""
        return sum(len(chunk.examples) for chunk in self.train)


@dataclass
class Outcome:
    """What a run knows of itself; a checkpoint keeps it."""

    best_score: float | None = None
    best_step: int = 0
    best_scores: dict[str, float] = field(default_factory=dict)
    looks_since_best: int = 0
    last_loss: float | None = None  # on the development set
    only_answer: str | None = None
    num_dev: int = 0
    tail_sum: float = 0.0  # of the training losses at the end
    tail_count: int = 0
    micro_tokens: int = 0
    num_reliefs: int = 0  # times that memory ran out
    history: list[dict[str, Any]] = field(default_factory=list)  # the journal's lines, for the report


@dataclass(frozen=True)
class RunSummary:
    """How a run ended, as plain values."""

    config: dict[str, Any]
    step: int
    num_steps: int
    seconds: float
    examples_per_second: float
    scores: dict[str, float]  # of the best checkpoint; empty without a development set
    best_step: int
    train_loss: float
    collapsed: str | None  # why, where it has
    stopped_by: str | None
    micro_tokens: int
    num_reliefs: int
    history: list[dict[str, Any]]


def step_values(records: Sequence[LossRecord], num_examples: int) -> dict[str, Any]:
    """What the journal says of the steps that were collected together; steps count from 1, as steps done."""
    last = records[-1]
    seconds, tokens = sum(record.seconds for record in records), sum(record.num_tokens for record in records)
    return {
        "step": last.step + 1,
        "loss": sum(record.loss for record in records) / len(records),
        "grad_norm": last.grad_norm,
        "learning_rate": last.learning_rate,
        "tokens": tokens,
        "seconds": seconds,
        "examples_per_second": num_examples / max(seconds, 1e-9),
        "tokens_per_second": tokens / max(seconds, 1e-9),
        "memory_bytes": memory_bytes(),
    }
