"""Tagging (section 5.3 of the paper): words in, one label a word out, read at each word's first piece.

In: sentences as words, with tags as BIO where they are known. Out: items, the loss over first pieces, legal tags and
entities with their characters. A word that the tokenizer leaves nothing of is read as [UNK], so every word has a label.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from bertkit.errors import BertkitError, LongTextWarning
from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig
from bertkit.tasks.reading.examples import TagExample
from bertkit.tasks.tagging.decoding import TagPrediction, predict_tags
from bertkit.tasks.tagging.labels import TagScheme, tag_labels
from bertkit.tasks.tagging.scoring import TagScorer
from bertkit.tasks.tagging.windows import NUM_SPECIAL, WordWindow, plan_windows
from bertkit.tasks.task import IGNORED, Item, TaskBatch
from bertkit.text.counted import agree, counted
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.fitting import Limit


@dataclass(frozen=True)
class TaggingTask:
    """A label for every word, out of these."""

    labels: tuple[str, ...]
    name: str = "tagging"

    def __post_init__(self) -> None:
        if not self.labels:
            raise BertkitError("tagging needs labels; give sentences with tags, or the names of the labels")

    @cached_property
    def scheme(self) -> TagScheme:
        """What the labels' names say."""
        return TagScheme(self.labels)

    @property
    def metric(self) -> str:
        """F1 of entities, or the share of right words where the labels name no entities."""
        return "f1" if self.scheme.is_prefixed else "word_accuracy"

    def configure(self, config: BertConfig) -> BertConfig:
        """The encoder's config with a tagger for these labels."""
        return config.with_heads(["tagger"], labels=self.labels)

    def encode(self, examples: Sequence[TagExample], tokenizer: Tokenizer, limit: Limit) -> list[Item]:
        """One item a sentence, or several windows of a long one."""
        pieces = word_pieces(examples, tokenizer)
        items: list[Item] = []
        long: list[tuple[TagExample, list[WordWindow]]] = []
        for index, example in enumerate(examples):
            words = [pieces[word] for word in example.words]
            targets = self._targets(example)
            windows = plan_windows([len(ids) for ids in words], limit, name_of(example, index))
            if len(windows) > 1 or len(windows[0].read) < len(words) or _cuts_a_word(words, limit):
                long.append((example, windows))
            for window in windows:
                items.append(_item(words, window, targets, index, tokenizer, limit))
        if long:
            warnings.warn(summarise(long, len(examples), limit), LongTextWarning, stacklevel=2)
        return items

    def _targets(self, example: TagExample) -> NDArray[np.int64]:
        """A label for each word; IGNORED where the truth is not known."""
        if example.tags is None:
            return np.full(len(example.words), IGNORED, dtype=np.int64)
        if len(example.tags) != len(example.words):
            raise BertkitError(
                f"{name_of(example)} has {len(example.words)} words and {len(example.tags)} tags; give each word one"
            )
        try:
            return np.array(self.scheme.targets(example.tags), dtype=np.int64)
        except BertkitError as error:
            raise BertkitError(f"{name_of(example)}: {error}") from None

    def logits(self, model: BertModel, batch: TaskBatch) -> Tensor:
        """Scores of the labels at each word's first piece: [R, C]."""
        return model.tag_logits(model.encoder(batch.inputs, rows=batch.rows))

    def loss_sum(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """Cross-entropy summed over words."""
        return F.cross_entropy(logits.float(), batch.targets, ignore_index=IGNORED, reduction="sum")

    def num_targets(self, item: Item) -> int:
        """Words with a known label."""
        return int((item.targets != IGNORED).sum())

    def decode(
        self, examples: Sequence[TagExample], items: Sequence[Item], logits: Sequence[NDArray[np.float32]]
    ) -> list[TagPrediction]:
        """Legal tags and entities of each sentence, its windows put together."""
        predictions = []
        pairs = groupby(zip(items, logits, strict=True), key=lambda pair: pair[0].example)
        for example, (_, windows) in zip(examples, pairs, strict=True):
            parts = [(item.note, scores) for item, scores in windows]
            merged = np.zeros((sum(len(read) for read, _ in parts), len(self.labels)), dtype=np.float32)
            for read, scores in parts:
                merged[list(read)] = scores
            predictions.append(predict_tags(example, merged, self.scheme, len(parts)))
        return predictions

    def scorer(self) -> TagScorer:
        """An empty scorer."""
        return TagScorer()

    def settings(self) -> dict[str, Any]:
        """Nothing but the labels, which the config keeps."""
        return {}

    def tuned(self, scores: Mapping[str, float]) -> "TaggingTask":
        """Nothing is tuned."""
        return self


def tagging_of(config: BertConfig, settings: Mapping[str, Any]) -> TaggingTask:
    """The task that a saved tagger was trained for, here or elsewhere."""
    if "tagger" not in config.heads:
        raise BertkitError("this checkpoint has no tagger; load one that was trained for tagging, or train it")
    return TaggingTask(config.labels)


def tagging_for(examples: Iterable[TagExample], *, known: Sequence[str] = ()) -> TaggingTask:
    """The task whose labels are the tags of these sentences; `known` is the order that a checkpoint already has."""
    sentences = []
    for example in examples:
        if example.tags is None:
            raise BertkitError(f"{name_of(example)} has no tags to learn from; give every word one, or leave it out")
        sentences.append(example.tags)
    labels = tag_labels(sentences)
    return TaggingTask(tuple(known) if set(known) == set(labels) else labels)


def word_pieces(examples: Sequence[TagExample], tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The token ids of every word, each encoded by itself so that no piece crosses a word's edge."""
    words = list(dict.fromkeys(word for example in examples for word in example.words))
    ids = tokenizer.encode_ids(words)
    return {word: found or [tokenizer.unk_id] for word, found in zip(words, ids, strict=True)}


def name_of(example: TagExample, index: int | None = None) -> str:
    """How to tell the user which sentence is meant."""
    if example.line is not None:
        return f"the sentence at line {example.line}"
    shown = " ".join(example.words[:6]) + " ..." * (len(example.words) > 6)
    return f"the sentence {shown!r}" if index is None else f"sentence {index + 1} ({shown!r})"


def summarise(long: Sequence[tuple[TagExample, list[WordWindow]]], num_examples: int, limit: Limit) -> str:
    """What was cut or split in one call, as one line."""
    have = agree(len(long), "has", "have")
    found = f"{len(long)} of {counted(num_examples, 'sentence')} {have} more than {limit.max_length} tokens"
    if limit.long == "truncate":
        lost = sum(len(example.words) - len(windows[0].read) for example, windows in long)
        said = counted(lost, "word was cut from its end and counts", "words were cut from the ends and count")
        return f"{found}: {said} as {'O'!r}; long='window' keeps them all"
    num_windows = sum(len(windows) for _, windows in long)
    return f"{found}: split into {num_windows} windows, each word read where it has most context"


def _cuts_a_word(words: Sequence[list[int]], limit: Limit) -> bool:
    return limit.max_length is not None and any(len(ids) > limit.max_length - NUM_SPECIAL for ids in words)


def _item(
    words: Sequence[list[int]],
    window: WordWindow,
    targets: NDArray[np.int64],
    example: int,
    tokenizer: Tokenizer,
    limit: Limit,
) -> Item:
    """[CLS] the window's pieces [SEP]; read are the first pieces of the window's own words."""
    room = None if limit.max_length is None else limit.max_length - NUM_SPECIAL
    ids, first_piece = [tokenizer.cls_id], {}
    for word in range(window.first, window.stop):
        first_piece[word] = len(ids)
        ids += words[word][:room]
    ids.append(tokenizer.sep_id)
    rows = np.array([first_piece[word] for word in window.read], dtype=np.int64)
    return Item(ids, [0] * len(ids), rows, targets[list(window.read)], example, note=window.read)
