"""Word in context (MCL-WiC): is a word used in the same sense in two sentences? Told by the cosine of its two vectors.

What enters: pairs of sentences with the word's characters marked, and a checkpoint. What leaves: accuracy of every layer,
with a threshold chosen on the training pairs; the layer that counts is chosen there too, so the test set chooses nothing.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.inference.batching import chunked, run_in_batches
from bertkit.inference.bert import Bert
from bertkit.model.budgets import ALL_LAYERS
from bertkit.model.packed import PackedBatch
from bertkit.tokenizer import Encoding, Tokenizer

PAIRS_AT_ONCE = 512
Span = tuple[int, int]


@dataclass(frozen=True)
class SensePair:
    """Two sentences with the word in question, and whether it has one sense."""

    sentences: tuple[str, str]
    spans: tuple[Span, Span]
    is_same: bool
    word: str = ""  # by which pairs belong together: MCL-WiC has two pairs a word, which share a sentence


@dataclass(frozen=True)
class LayerScore:
    """How well one layer tells senses apart; layer 0 is the embeddings' output."""

    layer: int
    threshold: float
    train_accuracy: float
    dev_accuracy: float
    test_accuracy: float


def read_sense_pairs(folder: Path, split: str, limit: int | None = None) -> list[SensePair]:
    """The pairs of training, dev or test."""
    try:
        rows = json.loads((folder / f"{split}.data.json").read_text(encoding="utf-8"))[:limit]
        gold = json.loads((folder / f"{split}.gold.json").read_text(encoding="utf-8"))
        truth = {row["id"]: row["tag"] == "T" for row in gold}
        return [_pair(row, truth[row["id"]]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BertkitError(f"{folder} has no readable {split} pairs ({error}); unpack MCL-WiC there") from None


def _pair(row: dict[str, Any], is_same: bool) -> SensePair:
    spans = [(int(row[f"start{side}"]), int(row[f"end{side}"])) for side in (1, 2)]
    word = f"{row['lemma']} {row.get('pos', '')}" if "lemma" in row else row["id"]
    return SensePair((row["sentence1"], row["sentence2"]), (spans[0], spans[1]), is_same, word)


def sense_cosines(
    bert: Bert, pairs: Sequence[SensePair], progress: Callable[[int], None] = lambda count: None
) -> NDArray[np.float32]:
    """The cosine of the word's two vectors in every layer, embeddings first: [pairs, layers + 1]."""
    found = []
    for chunk in chunked(pairs, PAIRS_AT_ONCE):
        texts = [text for pair in chunk for text in pair.sentences]
        spans = [span for pair in chunk for span in pair.spans]
        vectors = marked_vectors(bert, texts, spans).reshape(len(chunk), 2, bert.config.num_layers + 1, -1)
        lengths = np.linalg.norm(vectors, axis=-1)
        found.append((vectors[:, 0] * vectors[:, 1]).sum(-1) / np.maximum(lengths[:, 0] * lengths[:, 1], 1e-12))
        progress(len(chunk))
    return np.concatenate(found)


@torch.inference_mode()
def marked_vectors(bert: Bert, texts: Sequence[str], spans: Sequence[Span]) -> NDArray[np.float32]:
    """The mean of the marked word's pieces in every layer: [texts, layers + 1, D]."""
    model = bert.model
    marked = find_marked(bert.tokenizer, texts, spans, model.config.max_positions)

    def run(batch: PackedBatch, indices: list[int]) -> list[NDArray[np.float32]]:
        counts = torch.tensor([len(marked[index][1]) for index in indices])
        starts = batch.cls_rows.tolist()
        rows = [start + row for start, index in zip(starts, indices, strict=True) for row in marked[index][1]]
        word = torch.repeat_interleave(torch.arange(len(indices)), counts).to(batch.token_ids.device)
        taken = torch.tensor(rows, device=batch.token_ids.device)
        sums = []
        for state in model.encoder.all_layers(batch):
            empty = torch.zeros(len(indices), state.shape[1], device=state.device)
            sums.append(empty.index_add_(0, word, state[taken].float()))
        means = torch.stack(sums, dim=1).cpu() / counts[:, None, None]
        return list(means.numpy())

    return np.stack(
        run_in_batches([encoding for encoding, _ in marked], run, model.device, ALL_LAYERS.on(model.device))
    )


def find_marked(
    tokenizer: Tokenizer, texts: Sequence[str], spans: Sequence[Span], max_length: int
) -> list[tuple[Encoding, list[int]]]:
    """Each text's encoding (of a long one, the window with most of the word) and the rows of the marked word."""
    windows = tokenizer.encode_batch(texts, max_length=max_length, long="window")
    found = []
    for text, (start, end), encodings in zip(texts, spans, windows, strict=True):
        options = [(encoding, _rows_in(encoding, start, end)) for encoding in encodings]
        best = max(options, key=lambda option: len(option[1]))
        if not best[1]:
            raise BertkitError(f"no token stands in characters {start} to {end} of {text!r:.80}; mend the data")
        found.append(best)
    return found


def _rows_in(encoding: Encoding, start: int, end: int) -> list[int]:
    places = zip(encoding.text_ids, encoding.offsets, strict=True)
    return [row for row, (text_id, (s, e)) in enumerate(places) if text_id == 0 and s < end and e > start]


def choose_threshold(cosines: NDArray[np.floating[Any]], is_same: NDArray[np.bool_]) -> tuple[float, float]:
    """The threshold with the best accuracy on these pairs (at or above it: one sense), and that accuracy."""
    order = np.argsort(cosines, kind="stable")
    ordered, truth = cosines[order].astype(np.float64), is_same[order]
    # With the first k pairs below the threshold: those of them that differ are right, and those above that agree.
    right = np.concatenate([[0], np.cumsum(~truth)]) + truth.sum() - np.concatenate([[0], np.cumsum(truth)])
    between = np.concatenate([[True], ordered[1:] > ordered[:-1], [True]])  # equal cosines stay together
    best = int(np.argmax(np.where(between, right, -1)))
    padded = np.concatenate([[ordered[0] - 1.0], ordered, [ordered[-1] + 1.0]])
    return float((padded[best] + padded[best + 1]) / 2), float(right[best] / len(truth))


def score_layers(
    cosines: dict[str, NDArray[np.float32]], truths: dict[str, NDArray[np.bool_]]
) -> tuple[list[LayerScore], LayerScore]:
    """Every layer, and the one that is best on the training pairs; keys are training, dev and test."""
    layers = []
    for layer in range(cosines["training"].shape[1]):
        threshold, train = choose_threshold(cosines["training"][:, layer], truths["training"])
        said = {split: cosines[split][:, layer] >= threshold for split in ("dev", "test")}
        dev, test = (float((said[split] == truths[split]).mean()) for split in ("dev", "test"))
        layers.append(LayerScore(layer, threshold, train, dev, test))
    return layers, max(layers, key=lambda score: score.train_accuracy)


def summarise_senses(cosines: dict[str, NDArray[np.float32]], pairs: dict[str, list[SensePair]]) -> dict[str, Any]:
    """Plain figures."""
    truths = {split: np.array([pair.is_same for pair in found]) for split, found in pairs.items()}
    layers, best = score_layers(cosines, truths)
    return {
        "accuracy": best.test_accuracy,
        "best_layer": best.layer,
        "num_train": len(truths["training"]),
        "num_test": len(truths["test"]),
        "majority": float(max(truths["test"].mean(), 1 - truths["test"].mean())),
        "layers": [asdict(layer) for layer in layers],
    }
