"""A task's scores on held-out examples, and whether a run has collapsed to saying one thing whatever it reads.

Sums and counts are all that stays of a prediction. Collapse (appendix A.3 of the paper: large models are unstable on
small data): every development example gets one answer, or the training loss never fell below that of guessing by
frequency.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertkit.model.bert import BertModel
from bertkit.tasks.predicting import Chunk, predict_chunks
from bertkit.tasks.task import IGNORED, Item, Task

NOT_BELOW = 0.98  # of the loss of guessing: a run above it has learned nothing
FEW_STEPS = 50  # a run of fewer has not had the time to learn, and another seed would not help it


@dataclass(frozen=True)
class TaskEvaluation:
    """One look at held-out examples."""

    scores: dict[str, float]
    loss: float
    num_examples: int
    only_answer: str | None  # what every example was said to be, where there was one answer to different truths


def evaluate_task(task: Task[Any, Any], model: BertModel, chunks: Iterable[Chunk[Any]]) -> TaskEvaluation:
    """Scores over all examples, a chunk of logits at a time."""
    scorer = task.scorer()
    loss, num_targets, num = 0.0, 0, 0
    said: set[str] = set()
    truths: set[str] = set()
    for one in predict_chunks(task, model, chunks):
        scorer.add(one.example, one.prediction)
        loss, num_targets, num = loss + (one.loss or 0.0), num_targets + one.num_targets, num + 1
        _note(said, one.prediction)
        _note(truths, one.example)
    only = next(iter(said)) if len(said) == 1 and len(truths) > 1 else None
    return TaskEvaluation(scorer.scores(), loss / max(1, num_targets), num, only)


def _note(seen: set[str], one: Any) -> None:
    """Remember up to two different answers: a label, the tags, or the answer's text."""
    if len(seen) > 1:
        return
    for name in ("label", "tags", "text", "answers"):
        value = getattr(one, name, None)
        if value is not None:
            many = isinstance(value, tuple) and name == "tags"
            seen.update(map(str, value) if many else [f"{value:.3f}" if isinstance(value, float) else str(value)])
            return


def guessing_loss(task: Task[Any, Any], items: Sequence[Item]) -> float | None:
    """The mean loss of the best constant guess on these items; None where guesses are no classes or numbers."""
    if task.name not in ("classification", "tagging"):
        return None
    targets = np.concatenate([item.targets for item in items])
    weights = getattr(task, "class_weights", None)
    if targets.ndim > 1:
        share = np.clip(targets.mean(0), 1e-12, 1 - 1e-12)
        losses = -share * np.log(share) - (1 - share) * np.log(1 - share)
        return float(np.mean(losses * (1.0 if weights is None else np.array(weights))))
    if targets.dtype.kind == "f":
        return float(targets.var())
    counts = np.bincount(targets[targets != IGNORED]).astype(np.float64)
    weighed = counts if weights is None else counts * np.array(weights)[: len(counts)]
    shares = weighed[weighed > 0] / weighed.sum()
    return float(-(shares * np.log(shares)).sum() * weighed.sum() / counts.sum())


def find_collapse(train_loss: float, guess: float | None, look: TaskEvaluation | None) -> str | None:
    """Why this run counts as collapsed, or None."""
    if look is not None and look.only_answer is not None:
        return f"it says {look.only_answer!r} of all {look.num_examples:,} development examples"
    if guess is not None and guess > 0 and not train_loss < NOT_BELOW * guess:
        return f"its training loss {train_loss:.4f} is not clearly below {guess:.4f}, that of a constant guess"
    return None


def better(score: float, best: float | None) -> bool:
    """Whether a score is the best yet; one that is no number never is."""
    return math.isfinite(score) and (best is None or score > best)
