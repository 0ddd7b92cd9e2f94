"""One vector a word, as the paper takes them for tagging: that of the word's first piece.

Sentences become sequences as in fine-tuning (tasks/tagging/task.py), so that both read the same rows: those beyond the
model's positions are split into windows, which is reported, and each word is taken where it has most context.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.inference.batching import run_in_batches
from bertkit.inference.bert import Bert
from bertkit.inference.layers import LayerChoice, combine_layers, layer_width
from bertkit.model.packed import PackedBatch
from bertkit.tasks.reading.examples import TagExample
from bertkit.tasks.tagging.labels import OUTSIDE
from bertkit.tasks.tagging.task import TaggingTask
from bertkit.tasks.task import Item
from bertkit.tokenizer import LongPolicy
from bertkit.tokenizer.fitting import Limit


def word_vectors_of(
    bert: Bert, examples: Sequence[TagExample], layer: LayerChoice, long: LongPolicy, max_tokens: int | None = None
) -> NDArray[np.float32]:
    """The vector of each word's first piece, word after word of all examples: [R, W]."""
    untagged = [replace(example, tags=None) for example in examples]
    limit = Limit(bert.config.max_positions, long)
    items = TaggingTask((OUTSIDE,)).encode(untagged, bert.tokenizer, limit)
    found = _read_rows(bert, items, layer, max_tokens)
    starts = np.cumsum([0, *(len(example.words) for example in examples)])
    width = layer_width(layer, bert.config.num_layers, bert.config.hidden_size)
    vectors = np.empty((starts[-1], width), np.float32)
    for item, rows in zip(items, found, strict=True):
        vectors[starts[item.example] + np.asarray(item.note, dtype=np.int64)] = rows
    return vectors


def _read_rows(bert: Bert, items: list[Item], layer: LayerChoice, max_tokens: int | None) -> list[NDArray[np.float32]]:
    """The vectors of each item's rows."""

    def run(batch: PackedBatch, indices: list[int]) -> Sequence[NDArray[np.float32]]:
        hidden = combine_layers(bert.model.encoder.all_layers(batch), layer)
        starts = batch.cu_seqlens[:-1].tolist()
        rows = [items[index].rows + start for start, index in zip(starts, indices, strict=True)]
        taken = hidden[torch.from_numpy(np.concatenate(rows)).to(hidden.device)].float().cpu().numpy()
        return np.split(taken, np.cumsum([len(part) for part in rows])[:-1])

    with torch.inference_mode():
        return run_in_batches(items, run, bert.device, max_tokens)
