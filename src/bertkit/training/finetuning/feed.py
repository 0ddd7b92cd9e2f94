"""Examples become steps: shuffled by (seed, epoch), batch_size a step, cut into micro-batches by tokens.

In: a task's items. Out: TaskBatches by number, and which numbers form which step. The cut changes when memory runs
out; the steps do not. Where graphs replay them, batches come filled up to one of a few shapes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.tasks.predicting import Chunk
from bertkit.tasks.task import IGNORED, Task, TaskBatch, collate
from bertkit.training.plan import Place
from bertkit.training.shuffling import ShuffledSteps

MOST_PARTS = 1 << 20  # micro-batches that a step may have; numbers them apart from the next step's
SHUFFLE = 0xF1  # keeps the order's random numbers apart from dropout's


@dataclass(frozen=True)
class TaskCounts:
    """How much a micro-batch or a step holds."""

    num_targets: int
    num_tokens: int

    @property
    def denominators(self) -> tuple[int]:
        """What the summed loss is divided by."""
        return (max(1, self.num_targets),)


@dataclass(frozen=True)
class Shape:
    """Fixed sizes of a batch: CUDA graphs want few of them."""

    num_tokens: int
    num_sequences: int
    num_rows: int
    max_seqlen: int


def fill_up(batch: TaskBatch, shape: Shape) -> TaskBatch:
    """The same batch in a fixed shape; what is added is read by nobody, or ignored."""
    inputs, targets = batch.inputs, batch.targets
    spare, longest = shape.num_tokens - inputs.num_tokens, shape.max_seqlen
    dummies = [min(longest, spare - start) for start in range(0, spare, longest)]
    empty = shape.num_sequences - len(inputs) - len(dummies)
    rows = shape.num_rows - len(batch.rows)
    if spare < 0 or empty < 0 or rows < 0 or inputs.max_seqlen > longest:
        raise ValueError(f"{inputs.num_tokens} tokens in {len(inputs)} sequences do not fit into {shape}")
    lengths = torch.tensor([*dummies, *([0] * empty)], dtype=torch.int32)
    return TaskBatch(
        inputs=replace(
            inputs,
            token_ids=_extend(inputs.token_ids, spare, 0),
            segment_ids=_extend(inputs.segment_ids, spare, 0),
            position_ids=_extend(inputs.position_ids, spare, 0),  # a place that every model has
            cu_seqlens=torch.cat([inputs.cu_seqlens, inputs.num_tokens + lengths.cumsum(0, dtype=torch.int32)]),
            max_seqlen=longest,
        ),
        rows=_extend(batch.rows, rows, 0),
        targets=_extend(targets, rows, IGNORED),
    )


def _extend(tensor: Tensor, num: int, value: int) -> Tensor:
    return torch.cat([tensor, tensor.new_full((num, *tensor.shape[1:]), value)])


class TaskFeed:
    """Micro-batch `step * MOST_PARTS + part`; also the plan of which of them form a step."""

    def __init__(
        self,
        task: Task[Any, Any],
        chunks: Sequence[Chunk[Any]],
        *,
        batch_size: int,
        seed: int,
        micro_tokens: int,
        pads: bool,
        shape_for: Callable[[TaskBatch], Shape | None] | None = None,
    ) -> None:
        self.items = [item for chunk in chunks for item in chunk.items]
        self.targets = [task.num_targets(item) for item in self.items]
        self.first_items = _first_items(chunks)
        if not self.items:
            raise BertkitError("there is nothing to train on: the data has no examples")
        self.order = ShuffledSteps(self.num_examples, batch_size, seed, (SHUFFLE,))
        self.pads, self.micro_tokens, self.shape_for = pads, micro_tokens, shape_for
        # Steps at hand and those built ahead. Its own: a cache of the class would keep feeds of runs that are over.
        self.parts_of = lru_cache(maxsize=16)(self._cut)

    @property
    def num_examples(self) -> int:
        """Of an epoch."""
        return len(self.first_items) - 1

    @property
    def steps_per_epoch(self) -> int:
        """The last one of an epoch may be smaller."""
        return self.order.steps_an_epoch

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(len(item.ids) for item in self.items)

    def examples_of(self, step: int) -> NDArray[np.int64]:
        """The examples of a step: a function of (seed, step) alone."""
        return self.order.indices(step)

    def _cut(self, step: int, micro_tokens: int) -> list[list[int]]:
        """The items of each micro-batch of a step, of about one length each."""
        items = [i for e in self.examples_of(step) for i in range(self.first_items[e], self.first_items[e + 1])]
        items.sort(key=lambda i: -len(self.items[i].ids))
        parts: list[list[int]] = []
        used = 0
        for item in items:
            length = len(self.items[item].ids)
            # A backend that pads computes as many tokens for each sequence as the longest one has.
            cost = len(self.items[parts[-1][0]].ids) if parts and self.pads else length
            if not parts or used + cost > micro_tokens:
                parts.append([])
                used, cost = 0, length
            parts[-1].append(item)
            used += cost
        return parts

    def _part(self, index: int) -> list[int]:
        step, part = divmod(index, MOST_PARTS)
        return self.parts_of(step, self.micro_tokens)[part]

    def micro_batch(self, index: int) -> TaskBatch:
        """The micro-batch of this number."""
        batch = collate([self.items[i] for i in self._part(index)])
        shape = self.shape_for(batch) if self.shape_for else None
        return batch if shape is None else fill_up(batch, shape)

    def counts(self, index: int) -> TaskCounts:
        """What it holds."""
        part = self._part(index)
        return TaskCounts(sum(self.targets[i] for i in part), sum(len(self.items[i].ids) for i in part))

    def check_world(self, size: int) -> None:
        """One process."""
        self.order.check_world(size)

    def locate(self, step: int, num_steps: int | None) -> Place:
        """The micro-batches of a step."""
        return Place(0, step * MOST_PARTS, len(self.parts_of(step, self.micro_tokens)))

    def halve(self, step: int) -> bool:
        """Cut this step's micro-batches, and all later ones, in halves; False where each is one sequence already."""
        parts = self.parts_of(step, self.micro_tokens)
        if all(len(part) == 1 for part in parts):
            return False
        largest = max(self._cost(part) for part in parts)
        self.micro_tokens = max(1, min(self.micro_tokens, largest) // 2)
        return True

    def _cost(self, part: list[int]) -> int:
        lengths = [len(self.items[i].ids) for i in part]
        return max(lengths) * len(lengths) if self.pads else sum(lengths)


def _first_items(chunks: Sequence[Chunk[Any]]) -> list[int]:
    """Where each example's items begin, and the end of the last."""
    starts: list[int] = []
    num = 0
    for chunk in chunks:
        previous = -1
        for item in chunk.items:
            if item.example != previous:
                starts.append(num)
                previous = item.example
            num += 1
    return [*starts, num]
