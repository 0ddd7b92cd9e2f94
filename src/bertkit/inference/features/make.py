"""Features of a frozen encoder (section 5.3 of the paper): any layer or combination, one vector a text or a word.

In: examples in any number. Out: chunks of vectors of bounded size, with texts and labels. A word's vector is that of
its first piece (words.py); a text's is pooled as `embed` pools.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.embedding import EmbedOptions, Vectors, embed_stream
from bertkit.inference.encoding import check_pairs
from bertkit.inference.features.words import word_vectors_of
from bertkit.inference.layers import LayerChoice, check_layer, layer_width, read_layer
from bertkit.model.pooling import Pooling
from bertkit.tasks.features import FeatureRecipe, FeatureTable, Per
from bertkit.tasks.reading.examples import Label, TagExample, TextExample
from bertkit.tokenizer import LongPolicy

CHUNK_FLOATS = 2**25  # of vectors held at once
CHUNK_TEXTS = 1024


@dataclass(frozen=True)
class FeatureOptions:
    """Which vectors are taken. The paper's best is the last four layers side by side."""

    layer: LayerChoice = "concat-last-4"
    per: Per = "text"
    pooling: Pooling = "mean"  # of texts
    dtype: str = "float32"
    long: LongPolicy = "window"

    def __post_init__(self) -> None:
        if self.per not in get_args(Per):
            raise BertkitError(f"unknown per {self.per!r}; features are per text or per word")
        if self.per == "word" and self.long == "truncate":
            raise BertkitError("words that are cut have no vector; choose long='window' or 'error'")
        read_layer(self.layer)
        self.embedding()

    def embedding(self) -> EmbedOptions:
        """The same for sentence vectors: weighted layers stay side by side."""
        layer = self.layer.replace("weighted", "concat") if isinstance(self.layer, str) else self.layer
        return EmbedOptions(self.pooling, layer, False, self.dtype, self.long)  # type: ignore[arg-type]


@dataclass(frozen=True)
class FeatureChunk:
    """Some rows: a vector each, with its text or word, its label, and the number of its text."""

    vectors: Vectors  # [R, W]
    texts: list[str]
    pairs: list[str | None]
    labels: list[Label | None]
    text_ids: NDArray[np.int64]


def make_recipe(bert: Bert, options: FeatureOptions, model: str = "") -> FeatureRecipe:
    """What a head must know to make the same features again."""
    config = bert.config
    layers = check_layer(options.layer, config.num_layers)
    return FeatureRecipe(
        model=str(Path(model).resolve()) if model and Path(model).exists() else model,
        encoder=fingerprint(bert),
        layer=str(options.layer),
        per=options.per,
        width=layer_width(options.layer, config.num_layers, config.hidden_size),
        num_stacked=layers.num_joined(config.num_layers) if layers.is_side_by_side else 1,
        weighted=layers.one is None and layers.join == "weighted",
        pooling=options.pooling if options.per == "text" else "first piece",
    )


def fingerprint(bert: Bert) -> str:
    """A hash of tokenizer and encoder weights, in bfloat16, so that a model loaded in that has the same."""
    digest = hashlib.sha256(bert.tokenizer.fingerprint.encode())
    for name, tensor in sorted(bert.model.encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:32]


def stream_features(
    bert: Bert,
    examples: Iterable[TextExample | TagExample],
    options: FeatureOptions,
    *,
    max_tokens: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[FeatureChunk]:
    """Features of chunk after chunk of the examples, in their order; `progress` is told how many are done."""
    check_layer(options.layer, bert.config.num_layers)
    make = _text_chunk if options.per == "text" else _word_chunk
    first = 0
    for part in _parts(examples, layer_width(options.layer, bert.config.num_layers, bert.config.hidden_size)):
        yield make(bert, part, first, options, max_tokens)
        first += len(part)
        if progress:
            progress(len(part))


def make_features(
    bert: Bert, examples: Iterable[TextExample | TagExample], options: FeatureOptions | None = None, model: str = ""
) -> FeatureTable:
    """All features at once, in memory; see `features_to_file` for more than fit there."""
    options = options or FeatureOptions()
    recipe = make_recipe(bert, options, model)
    chunks = list(stream_features(bert, examples, options))
    none = np.zeros((0, recipe.width), options.dtype)
    return FeatureTable(
        recipe=recipe,
        vectors=np.concatenate([none, *(chunk.vectors for chunk in chunks)]),
        labels=[label_text(label) for chunk in chunks for label in chunk.labels],
        texts=[text for chunk in chunks for text in chunk.texts],
        text_ids=np.concatenate([np.zeros(0, np.int64), *(chunk.text_ids for chunk in chunks)]),
    )


def label_text(label: Label | None) -> str | None:
    """A label as a head knows it."""
    if label is None or isinstance(label, str):
        return label
    if isinstance(label, tuple):
        return ",".join(label)
    return str(int(label)) if float(label).is_integer() else repr(float(label))  # every digit: labels are told apart


def _parts(examples: Iterable[TextExample | TagExample], width: int) -> Iterator[list[Any]]:
    """Examples in lists whose vectors stay within bounds."""
    part: list[TextExample | TagExample] = []
    floats = 0
    for example in examples:
        part.append(example)
        floats += width * (len(example.words) if isinstance(example, TagExample) else 1)
        if floats >= CHUNK_FLOATS or len(part) == CHUNK_TEXTS:
            yield part
            part, floats = [], 0
    if part:
        yield part


def _text_chunk(
    bert: Bert, examples: list[TextExample], first: int, options: FeatureOptions, max_tokens: int | None
) -> FeatureChunk:
    if any(isinstance(example, TagExample) for example in examples):
        raise BertkitError("these examples are words with tags; choose per='word'")
    if any(example.pair is not None for example in examples):
        check_pairs(bert.config)
    texts = [example.text if example.pair is None else (example.text, example.pair) for example in examples]
    parts = list(embed_stream(bert.model, bert.tokenizer, texts, options.embedding(), max_tokens=max_tokens))
    return FeatureChunk(
        vectors=np.concatenate(parts),
        texts=[example.text for example in examples],
        pairs=[example.pair for example in examples],
        labels=[example.label for example in examples],
        text_ids=np.arange(first, first + len(examples)),
    )


def _word_chunk(
    bert: Bert, examples: list[TagExample], first: int, options: FeatureOptions, max_tokens: int | None
) -> FeatureChunk:
    if any(isinstance(example, TextExample) for example in examples):
        raise BertkitError("these examples are whole texts; choose per='text', or read words")
    vectors = word_vectors_of(bert, examples, options.layer, options.long, max_tokens).astype(options.dtype)
    lengths = [len(example.words) for example in examples]
    words = [word for example in examples for word in example.words]
    tags = [tag for example in examples for tag in (example.tags or [None] * len(example.words))]
    ids = np.repeat(np.arange(first, first + len(examples)), lengths)
    return FeatureChunk(vectors, words, [None] * len(words), list(tags), ids)
