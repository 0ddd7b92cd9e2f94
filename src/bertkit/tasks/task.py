"""What every fine-tuning task is (section 3.2 of the paper): one small layer on top, and five things to know of it.

How examples become sequences with targets, what the head says of them, what that costs, what it means, and how good
that is. The loop, the evaluation and the command line know tasks by this alone. Dimensions: T tokens, N sequences,
R rows that the head reads, C outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig
from bertkit.model.packed import PackedBatch, move_tensors, pack
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.fitting import Limit

IGNORED = -100  # a target that counts nowhere

ExampleT = TypeVar("ExampleT")
PredictionT = TypeVar("PredictionT")
# What a task or scorer only takes varies the other way round.
ExampleT_contra = TypeVar("ExampleT_contra", contravariant=True)
PredictionT_contra = TypeVar("PredictionT_contra", contravariant=True)


@dataclass(frozen=True)
class Item:
    """One sequence as the model takes it: a text, a pair, or one window of a long one."""

    ids: list[int]
    segment_ids: list[int]
    rows: NDArray[np.int64]  # the tokens of this sequence whose vectors the head reads
    targets: NDArray[Any]  # what is to be said of them; empty where the truth is not known
    example: int  # which example it was made of
    note: Any = field(default=None, compare=False)  # what decoding wants to remember


@dataclass(frozen=True)
class TaskBatch:
    """Items laid end to end."""

    inputs: PackedBatch
    rows: Tensor  # [R] rows of the packed batch
    targets: Tensor  # the items' targets, one after another

    def to(self, device: torch.device | str) -> "TaskBatch":
        """The same batch on another device."""
        return move_tensors(self, device)


class Scorer(Protocol[ExampleT_contra, PredictionT_contra]):
    """Adds up what is needed for the scores, and never holds logits."""

    def add(self, example: ExampleT_contra, prediction: PredictionT_contra) -> None:
        """One more example with its prediction."""

    def scores(self) -> dict[str, float]:
        """Every score by name, in 0 to 1 (correlations in -1 to 1)."""


class Task(Protocol[ExampleT_contra, PredictionT]):
    """One task: its examples, its head, its loss, its predictions, its scores."""

    @property
    def name(self) -> str:
        """How people call it."""

    @property
    def metric(self) -> str:
        """The score by which the best checkpoint is chosen."""

    def configure(self, config: BertConfig) -> BertConfig:
        """The encoder's config with this task's head and labels."""

    def encode(self, examples: Sequence[ExampleT_contra], tokenizer: Tokenizer, limit: Limit) -> list[Item]:
        """At least one item an example, in their order; windows of one example stand together."""

    def logits(self, model: BertModel, batch: TaskBatch) -> Tensor:
        """What the head says: [R, C]."""

    def loss_sum(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """The loss summed over the targets that are not IGNORED."""

    def num_targets(self, item: Item) -> int:
        """How many targets an item has: what the summed loss is divided by, over a whole step."""

    def decode(
        self, examples: Sequence[ExampleT_contra], items: Sequence[Item], logits: Sequence[NDArray[np.float32]]
    ) -> list[PredictionT]:
        """One prediction an example, from the logits of each of its items (windows merged)."""

    def scorer(self) -> Scorer[ExampleT_contra, PredictionT]:
        """An empty scorer."""

    def settings(self) -> dict[str, Any]:
        """What a saved model must remember beside its config, as JSON: thresholds and the like; often {}."""

    def tuned(self, scores: Mapping[str, float]) -> "Task[ExampleT_contra, PredictionT]":
        """The task with what is set on development data, such as a threshold among the scores; mostly itself."""


@dataclass(frozen=True)
class Scored(Generic[ExampleT, PredictionT]):
    """An example, what was predicted for it, and what that cost."""

    example: ExampleT
    prediction: PredictionT
    loss: float | None  # summed over its targets; None where the truth is not known
    num_targets: int = 0


def collate(items: Sequence[Item]) -> TaskBatch:
    """Lay items end to end, and shift their rows accordingly."""
    inputs = pack([item.ids for item in items], [item.segment_ids for item in items])
    starts = inputs.cu_seqlens[:-1].tolist()
    rows = [item.rows + start for item, start in zip(items, starts, strict=True)]
    return TaskBatch(
        inputs=inputs,
        rows=torch.from_numpy(np.concatenate(rows).astype(np.int64)),
        targets=torch.from_numpy(np.concatenate([item.targets for item in items])),
    )
