"""Sentence vectors (feature-based use, section 5.3 of the paper): one vector a text.

In: texts of any number and length. Out: [N, D] vectors, by masked mean, [CLS] or max over the tokens of a layer, or
of several joined (layers.py). Texts beyond the model's positions are cut into windows whose vectors are merged,
unless the caller asks for an error or for truncation; either is reported.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.inference.batching import ahead, vectors_in_batches
from bertkit.inference.engines.runs import RUN_TOKENS
from bertkit.inference.engines.session import SessionEncoder
from bertkit.inference.layers import LayerChoice, check_layer, combine_layers, read_layer
from bertkit.model.bert import BertModel
from bertkit.model.packed import PackedBatch
from bertkit.model.pooling import Pooling, pool
from bertkit.tokenizer import Encoding, LongPolicy, Tokenizer
from bertkit.tokenizer.inputs import Text

TextT = TypeVar("TextT", bound=Text)
DType = Literal["float32", "float16"]
Vectors = NDArray[np.floating[Any]]
# Tokenized and sorted together: enough texts to sort well, and few enough characters to bound memory.
CHUNK_TEXTS = 4096
CHUNK_CHARACTERS = 8_000_000
# A GPU waits while its first texts are tokenized, and nothing is tokenized while it computes the last: few at first, twice
# as many from chunk to chunk, and never very many.
FIRST_ON_GPU, MOST_ON_GPU = 512, 2048
FEW_TEXTS = 64  # not worth a thread


@dataclass(frozen=True)
class EmbedOptions:
    """Which vector stands for a text."""

    pooling: Pooling = "mean"
    layer: LayerChoice = -1  # 0 is the embedding output, -1 the last layer
    normalize: bool = False
    dtype: DType = "float32"
    long: LongPolicy = "window"
    max_length: int | None = None  # tokens a window, special tokens included; None: all positions of the model

    def __post_init__(self) -> None:
        for name, choices in (
            ("pooling", get_args(Pooling)),
            ("dtype", get_args(DType)),
            ("long", get_args(LongPolicy)),
        ):
            if getattr(self, name) not in choices:
                raise BertkitError(f"unknown {name} {getattr(self, name)!r}; choose one of {', '.join(choices)}")
        if self.max_length is not None and self.max_length < 3:
            raise BertkitError(f"max_length is {self.max_length} but [CLS], one token and [SEP] need 3")
        if read_layer(self.layer).join == "weighted":
            raise BertkitError(f"the weights of {self.layer!r} are a trained head's; use it with `bertkit features`")


def embed_stream(
    model: BertModel,
    tokenizer: Tokenizer,
    texts: Iterable[TextT],
    options: EmbedOptions,
    *,
    max_tokens: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Vectors]:
    """Vectors of chunk after chunk of the texts, in their order; `progress` is told how many are done."""
    check_layer(options.layer, model.config.num_layers)
    limit = min(model.config.max_positions, options.max_length or model.config.max_positions)
    sizes = (CHUNK_TEXTS, CHUNK_TEXTS) if model.device.type == "cpu" else (FIRST_ON_GPU, MOST_ON_GPU)
    chunks = (
        tokenizer.encode_batch(chunk, max_length=limit, long=options.long, stride=0, offsets=False)
        for chunk in text_chunks(texts, *sizes)
    )
    few = isinstance(texts, Sequence) and len(texts) <= FEW_TEXTS
    for windows in chunks if few else ahead(chunks):
        yield _embed_chunk(model, windows, options, max_tokens)
        if progress:
            progress(len(windows))


def text_chunks(texts: Iterable[TextT], first: int, largest: int) -> Iterator[list[TextT]]:
    """Texts in lists of a bounded size that doubles, so that a stream of any length is never held whole."""
    chunk: list[TextT] = []
    num_characters = 0
    most = first
    for text in texts:
        chunk.append(text)
        parts = text if isinstance(text, tuple | list) else (text,)
        num_characters += sum(len(part) for part in parts if isinstance(part, str))  # others are refused when encoded
        if len(chunk) == most or num_characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, num_characters = [], 0
            most = min(2 * most, largest)
    if chunk:
        yield chunk


def _embed_chunk(
    model: BertModel, windows: Sequence[Sequence[Encoding]], options: EmbedOptions, max_tokens: int | None
) -> Vectors:
    encodings = [window for text in windows for window in text]
    vectors = sequence_vectors(model, encodings, options, max_tokens)
    if len(encodings) != len(windows):
        vectors = np.stack(list(_merge_windows(vectors, windows, options.pooling)))
    if options.normalize:
        vectors = normalized(vectors)
    return vectors.astype(options.dtype, copy=False)


def sequence_vectors(
    model: BertModel, encodings: Sequence[Encoding], options: EmbedOptions, max_tokens: int | None = None
) -> NDArray[np.float32]:
    """One vector an encoding, [N, D]."""
    last = read_layer(options.layer).one in (-1, model.config.num_layers)
    if last and isinstance(model.encoder, SessionEncoder) and model.encoder.is_current:
        return model.encoder.pooled(encodings, options.pooling, max_tokens or RUN_TOKENS)

    def run(batch: PackedBatch) -> Tensor:
        return pool(select_layer(model, batch, options), batch, options.pooling).float()

    with torch.inference_mode():
        return vectors_in_batches(encodings, run, model.device, max_tokens)


def select_layer(model: BertModel, batch: PackedBatch, options: EmbedOptions) -> Tensor:
    """The token vectors that are pooled: [T, D], or [T, K D] where layers lie side by side."""
    if read_layer(options.layer).one in (-1, model.config.num_layers):
        if options.pooling == "cls":
            hidden: Tensor = model.encoder(batch, rows=batch.cls_rows)
            return hidden
        hidden = model.encoder(batch)
        return hidden
    return combine_layers(model.encoder.all_layers(batch), options.layer)


def _merge_windows(
    vectors: NDArray[np.float32], windows: Sequence[Sequence[object]], pooling: Pooling
) -> Iterator[NDArray[np.float32]]:
    """One vector a text again: windows weigh by their tokens in a mean, equally as [CLS], not at all in a max."""
    start = 0
    for text_windows in windows:
        parts = vectors[start : start + len(text_windows)]
        start += len(text_windows)
        if len(parts) == 1:
            yield parts[0]
        elif pooling == "max":
            yield parts.max(axis=0)
        else:
            lengths = [len(window) for window in text_windows]  # type: ignore[arg-type]
            yield np.average(parts, axis=0, weights=lengths if pooling == "mean" else None).astype(np.float32)


def normalized(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length 1; a zero row stays zero."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: NDArray[np.float32] = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
    return scaled


def cosine_matrix(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosine of every row of a with every row of b."""
    return normalized(a) @ normalized(b).T
