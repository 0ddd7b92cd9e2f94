"""Pairs of sentences -> packed batches: every text tokenized once, first texts, second texts, then hard negatives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.model.bert import BertModel
from bertkit.model.budgets import PREDICTIONS
from bertkit.model.packed import PackedBatch, move_tensors, pack, plan_batches
from bertkit.model.pooling import Pooling, pool
from bertkit.tasks.metrics.numbers import spearman
from bertkit.tasks.sentence_pairs import PairExample
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.fitting import Limit
from bertkit.training.shuffling import ShuffledSteps

NO_TEXT = -1
MOST_RANKED = 4096  # second texts among which the own one must be nearest, without scores


@dataclass(frozen=True)
class PairData:
    """Texts as token ids, each once, and pairs as their numbers."""

    texts: Sequence[Sequence[int]]
    first: NDArray[np.int64]  # [P]
    second: NDArray[np.int64]  # [P]
    negative: NDArray[np.int64]  # [P], NO_TEXT where there is none
    scores: NDArray[np.float32] | None  # [P]

    def __len__(self) -> int:
        return len(self.first)


def encode_pairs(examples: Sequence[PairExample], tokenizer: Tokenizer, limit: Limit) -> PairData:
    """Tokenize; what is over the limit is cut or refused as the limit says, and told."""
    numbers: dict[str, int] = {}
    columns = [
        [numbers.setdefault(text, len(numbers)) if text is not None else NO_TEXT for text in column]
        for column in zip(*((one.text, one.pair or "", one.negative) for one in examples), strict=True)
    ]
    encoded = tokenizer.encode_batch(list(numbers), max_length=limit.max_length, long=limit.long)
    first, second, negative = (np.array(column, dtype=np.int64) for column in columns)
    scores = [example.score for example in examples]
    known = None if any(score is None for score in scores) else np.array(scores, dtype=np.float32)
    return PairData([windows[0].ids for windows in encoded], first, second, negative, known)


@dataclass(frozen=True)
class PairBatch:
    """N pairs: sequences 0 to N are the first texts, then come the M candidates."""

    inputs: PackedBatch
    first: Tensor  # [N] numbers of the first texts
    candidates: Tensor  # [M] numbers of the second texts and then of the negatives
    scores: Tensor  # [N], or [0] where there are none

    def to(self, device: torch.device | str) -> "PairBatch":
        """The same batch on another device."""
        return move_tensors(self, device)

    @property
    def known(self) -> Tensor:
        """Candidates that are no negatives of a first text: [N, M], equal to its second text (itself apart) or to it."""
        own = self.candidates[: len(self.first)]
        same = (own[:, None] == self.candidates[None, :]) | (self.first[:, None] == self.candidates[None, :])
        same[:, : len(own)] &= ~torch.eye(len(own), dtype=torch.bool, device=same.device)
        return same


@dataclass(frozen=True)
class PairCounts:
    """What a step holds."""

    num_pairs: int
    num_tokens: int

    @property
    def denominators(self) -> tuple[int, ...]:
        """The losses are means of a batch by themselves."""
        return (1,)


class PairFeed:
    """Pairs by the number of the step; a step is one micro-batch, because every pair learns from all others in it."""

    def __init__(self, data: PairData, order: ShuffledSteps) -> None:
        self.data, self.order = data, order

    def _numbers(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        rows = self.order.indices(index)
        negative = self.data.negative[rows]
        return rows, self.data.first[rows], np.concatenate([self.data.second[rows], negative[negative != NO_TEXT]])

    def micro_batch(self, index: int) -> PairBatch:
        """The pairs of this step."""
        rows, first, candidates = self._numbers(index)
        inputs = pack([self.data.texts[number] for number in (*first, *candidates)])
        scores = np.zeros(0, np.float32) if self.data.scores is None else self.data.scores[rows]
        return PairBatch(inputs, *(torch.from_numpy(array) for array in (first, candidates, scores)))

    def counts(self, index: int) -> PairCounts:
        """Its pairs and tokens."""
        rows, first, candidates = self._numbers(index)
        return PairCounts(len(rows), sum(len(self.data.texts[number]) for number in (*first, *candidates)))


@torch.inference_mode()
def text_vectors(model: BertModel, data: PairData, pooling: Pooling) -> NDArray[np.float32]:
    """The vectors of all texts, of length 1: [texts, D]; dropout off."""
    was_training = model.training
    model.eval()
    vectors = np.empty((len(data.texts), model.config.hidden_size), np.float32)
    for batch in _batches(data, PREDICTIONS.on(model.device)):
        inputs = pack([data.texts[number] for number in batch]).to(model.device)
        pooled = torch.nn.functional.normalize(pool(model.encoder(inputs), inputs, pooling).float(), dim=-1)
        vectors[batch] = pooled.cpu().numpy()
    model.train(was_training)
    return vectors


def _batches(data: PairData, max_tokens: int) -> Iterator[list[int]]:
    yield from plan_batches([len(ids) for ids in data.texts], max_tokens)


def score_pairs(model: BertModel, data: PairData, pooling: Pooling) -> dict[str, float]:
    """Spearman's correlation of cosines and scores; without scores, how often the own second text is the nearest."""
    vectors = text_vectors(model, data, pooling)
    if data.scores is not None:
        cosines = np.einsum("nd,nd->n", vectors[data.first], vectors[data.second])
        return {"spearman": spearman(data.scores, cosines)}
    first, second = data.first[:MOST_RANKED], data.second[:MOST_RANKED]
    nearest = (vectors[first] @ vectors[second].T).argmax(1)
    return {"retrieval": float(np.mean(second[nearest] == second))}
