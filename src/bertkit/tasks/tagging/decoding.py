"""From a score for every label of every word to the best legal sequence, and from there to entities in the text.

In: [W, C] logits of W words. Out: the labels of highest total log-probability among the legal sequences (Viterbi),
and for each entity its words, its characters and its confidence.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.tasks.reading.examples import TagExample
from bertkit.tasks.tagging.labels import OUTSIDE, TagScheme

Scores = NDArray[np.floating]


@dataclass(frozen=True)
class Entity:
    """A named thing in a text: text[start:end] == entity.text, words first_word to last_word (included)."""

    kind: str
    first_word: int
    last_word: int
    text: str
    start: int
    end: int
    confidence: float  # the probability of its tags: the product over its words


@dataclass(frozen=True)
class TagPrediction:
    """A tag for every word (BIO), and the entities that they make."""

    tags: tuple[str, ...]
    entities: tuple[Entity, ...]
    num_windows: int = 1  # more: the sentence was long, and each word was read where it has most context
    num_cut: int = 0  # words that truncation took; they count as O


def log_softmax(logits: Scores) -> NDArray[np.float64]:
    """Log-probabilities of the labels of each row."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    normal: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normal


def best_sequence(log_probabilities: NDArray[np.float64], scheme: TagScheme) -> NDArray[np.int64]:
    """The legal sequence of labels with the highest sum: [W]."""
    each_best = log_probabilities.argmax(axis=1)
    # The best label of every word is the best sequence of all, so where it is legal there is nothing to search.
    return each_best if scheme.is_legal(each_best) else _viterbi(log_probabilities, scheme, each_best)


def _viterbi(
    log_probabilities: NDArray[np.float64], scheme: TagScheme, otherwise: NDArray[np.int64]
) -> NDArray[np.int64]:
    steps = np.where(scheme.can_follow, 0.0, -np.inf)  # [C before, C after]
    total = log_probabilities[0] + np.where(scheme.can_begin, 0.0, -np.inf)
    came_from = np.zeros(log_probabilities.shape, dtype=np.int64)
    for word in range(1, len(log_probabilities)):
        paths = total[:, None] + steps
        came_from[word] = paths.argmax(axis=0)
        total = paths.max(axis=0) + log_probabilities[word]
    total = total + np.where(scheme.can_end, 0.0, -np.inf)
    if not np.isfinite(total.max()):
        return otherwise  # labels with which no sequence of this length is legal
    path = np.empty(len(log_probabilities), dtype=np.int64)
    path[-1] = total.argmax()
    for word in range(len(path) - 1, 0, -1):
        path[word - 1] = came_from[word, path[word]]
    return path


def predict_tags(example: TagExample, logits: Scores, scheme: TagScheme, num_windows: int = 1) -> TagPrediction:
    """The prediction for one sentence; words beyond the logits (cut, as asked) are outside of entities."""
    num_cut = len(example.words) - len(logits)
    if not len(logits):
        return TagPrediction((OUTSIDE,) * num_cut, (), num_windows, num_cut)
    log_probabilities = log_softmax(logits)
    ids = best_sequence(log_probabilities, scheme)
    chosen = log_probabilities[np.arange(len(ids)), ids]
    tags, spans = scheme.spell(ids.tolist())
    text, places = located(example)
    entities = []
    for span in spans:
        start, end = places[span.first][0], places[span.last][1]
        confidence = float(np.exp(chosen[span.first : span.last + 1].sum()))
        entities.append(Entity(span.kind, span.first, span.last, text[start:end], start, end, confidence))
    return TagPrediction((*tags, *[OUTSIDE] * num_cut), tuple(entities), num_windows, num_cut)


def located(example: TagExample) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text of a sentence and the characters of its words; words without a text are joined by spaces."""
    if example.text is not None and example.spans is not None:
        return example.text, example.spans
    spans, start = [], 0
    for word in example.words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return " ".join(example.words), tuple(spans)
