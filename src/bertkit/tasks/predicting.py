"""A task's predictions on any number of examples: sorted by length, batched by tokens, decoded, in the order given.

In: a task, a model with its head, examples. Out: a stream of Scored. A chunk's logits are all that is ever held, and
where memory runs out the batches are halved.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.budgets import PREDICTIONS
from bertkit.model.packed import plan_batches
from bertkit.tasks.task import ExampleT, Item, PredictionT, Scored, Task, collate
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.fitting import Limit

CHUNK = 2048  # examples tokenized and sorted together
Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Chunk(Generic[ExampleT]):
    """Examples with their items, encoded together."""

    examples: Sequence[ExampleT]
    items: Sequence[Item]


def encode_chunks(
    task: Task[ExampleT, Any], examples: Iterable[ExampleT], tokenizer: Tokenizer, limit: Limit, size: int = CHUNK
) -> Iterator[Chunk[ExampleT]]:
    """Examples of any number, a chunk at a time."""
    stream = iter(examples)
    while part := list(islice(stream, size)):
        yield Chunk(part, task.encode(part, tokenizer, limit))


def predict_chunks(
    task: Task[ExampleT, PredictionT],
    model: BertModel,
    chunks: Iterable[Chunk[ExampleT]],
    *,
    max_tokens: int | None = None,
) -> Iterator[Scored[ExampleT, PredictionT]]:
    """What the model says of every example, and what that costs where the truth is known; dropout off."""
    was_training = model.training
    model.eval()
    budget = max_tokens or PREDICTIONS.on(model.device)
    try:
        for chunk in chunks:
            logits, budget = _chunk_logits(task, model, chunk.items, budget)
            predictions = task.decode(chunk.examples, chunk.items, logits)
            losses = _losses(task, chunk.items, logits)
            for example, prediction, (loss, num) in zip(chunk.examples, predictions, losses, strict=True):
                yield Scored(example, prediction, loss, num)
    finally:
        model.train(was_training)


def predict_examples(
    task: Task[ExampleT, PredictionT],
    model: BertModel,
    tokenizer: Tokenizer,
    examples: Iterable[ExampleT],
    limit: Limit,
    *,
    max_tokens: int | None = None,
    chunk_size: int = CHUNK,
) -> Iterator[Scored[ExampleT, PredictionT]]:
    """The same from the examples themselves, encoded chunk by chunk."""
    chunks = encode_chunks(task, examples, tokenizer, limit, chunk_size)
    return predict_chunks(task, model, chunks, max_tokens=max_tokens)


def _chunk_logits(
    task: Task[Any, Any], model: BertModel, items: Sequence[Item], budget: int
) -> tuple[list[Logits], int]:
    """Logits of each item, and the token budget that memory allowed."""
    lengths = [len(item.ids) for item in items]
    while True:
        try:
            found: dict[int, Logits] = {}
            for batch in plan_batches(lengths, budget):
                rows = _run(task, model, [items[index] for index in batch])
                found.update(zip(batch, rows, strict=True))
            return [found[index] for index in range(len(items))], budget
        except torch.OutOfMemoryError:
            if budget <= max(lengths):
                raise BertkitError(
                    f"out of memory with one text of {max(lengths)} tokens; lower max_length, or use the CPU"
                ) from None
        budget = max(*lengths, budget // 2)
        torch.cuda.empty_cache()


@torch.inference_mode()
def _run(task: Task[Any, Any], model: BertModel, items: Sequence[Item]) -> list[Logits]:
    batch = collate(items).to(model.device)
    logits = task.logits(model, batch).float().cpu().numpy()
    ends = np.cumsum([len(item.rows) for item in items])[:-1]
    return np.split(logits, ends)


def _losses(
    task: Task[Any, Any], items: Sequence[Item], logits: Sequence[Logits]
) -> Iterator[tuple[float | None, int]]:
    """Each example's loss over all its windows, with the number of its targets."""
    for _, group in groupby(zip(items, logits, strict=True), key=lambda pair: pair[0].example):
        parts = [(item, rows, task.num_targets(item)) for item, rows in group]
        known = [float(task.loss_sum(torch.from_numpy(rows), collate([item]))) for item, rows, num in parts if num > 0]
        yield (sum(known) if known else None), sum(num for *_, num in parts)
