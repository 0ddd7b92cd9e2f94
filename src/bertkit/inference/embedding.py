"""Sentence vectors (feature-based use, section 5.3 of the paper): one vector a text.

In: texts of any number and length. Out: [N, D] vectors, by masked mean, [CLS] or max over a layer's tokens, or
over the last four layers averaged or concatenated. Texts beyond the model's positions are cut into windows whose
vectors are merged, unless the caller asks for an error or for truncation; either is reported.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.inference.batching import run_in_batches
from bertkit.model.bert import BertModel
from bertkit.model.packed import PackedBatch
from bertkit.tokenizer import LongPolicy, Tokenizer

Pooling = Literal["mean", "cls", "max"]
LayerChoice = int | Literal["mean-last-4", "concat-last-4"]
DType = Literal["float32", "float16"]
Vectors = NDArray[np.floating[Any]]
# Tokenized and sorted together: enough texts to sort well, and few enough characters to bound memory.
CHUNK_TEXTS = 4096
CHUNK_CHARACTERS = 8_000_000
LAST_FOUR = 4


@dataclass(frozen=True)
class EmbedOptions:
    """Which vector stands for a text."""

    pooling: Pooling = "mean"
    layer: LayerChoice = -1  # 0 is the embedding output, -1 the last layer
    normalize: bool = False
    dtype: DType = "float32"
    long: LongPolicy = "window"

    def __post_init__(self) -> None:
        for name, choices in (
            ("pooling", get_args(Pooling)),
            ("dtype", get_args(DType)),
            ("long", get_args(LongPolicy)),
        ):
            if getattr(self, name) not in choices:
                raise BertkitError(f"unknown {name} {getattr(self, name)!r}; choose one of {', '.join(choices)}")
        if isinstance(self.layer, str) and self.layer not in ("mean-last-4", "concat-last-4"):
            raise BertkitError(f"unknown layer {self.layer!r}; give a number, 'mean-last-4' or 'concat-last-4'")


def embed_stream(
    model: BertModel,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    options: EmbedOptions,
    *,
    max_tokens: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Vectors]:
    """Vectors of chunk after chunk of the texts, in their order; `progress` is told how many are done."""
    check_layer(options.layer, model.config.num_layers)
    for chunk in text_chunks(texts):
        yield _embed_chunk(model, tokenizer, chunk, options, max_tokens)
        if progress:
            progress(len(chunk))


def text_chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in lists of a bounded size, so that a stream of any length is never held whole."""
    chunk: list[str] = []
    num_characters = 0
    for text in texts:
        chunk.append(text)
        num_characters += len(text)
        if len(chunk) == CHUNK_TEXTS or num_characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, num_characters = [], 0
    if chunk:
        yield chunk


def _embed_chunk(
    model: BertModel, tokenizer: Tokenizer, texts: list[str], options: EmbedOptions, max_tokens: int | None
) -> Vectors:
    windows = tokenizer.encode_batch(texts, max_length=model.config.max_positions, long=options.long, stride=0)
    encodings = [window for text in windows for window in text]

    def run(batch: PackedBatch, _: list[int]) -> Sequence[NDArray[np.float32]]:
        return list(pool(select_layer(model, batch, options), batch, options.pooling).float().cpu().numpy())

    with torch.inference_mode():
        vectors = run_in_batches(encodings, run, model.device, max_tokens)
    merged = np.stack(list(_merge_windows(vectors, windows, options.pooling)))
    if options.normalize:
        merged = normalized(merged)
    return merged.astype(options.dtype)


def select_layer(model: BertModel, batch: PackedBatch, options: EmbedOptions) -> Tensor:
    """The token vectors that are pooled: [T, D], or [T, 4 D] for the concatenation."""
    if options.layer in (-1, model.config.num_layers):
        if options.pooling == "cls":
            hidden: Tensor = model.encoder(batch, rows=batch.cls_rows)
            return hidden
        hidden = model.encoder(batch)
        return hidden
    return combine_layers(model.encoder.all_layers(batch), options.layer)


def combine_layers(states: list[Tensor], layer: LayerChoice) -> Tensor:
    """One tensor out of the embedding output and all layers' outputs."""
    if isinstance(layer, int):
        return states[layer]
    last = states[-LAST_FOUR:]
    return torch.stack(last).mean(0) if layer == "mean-last-4" else torch.cat(last, dim=-1)


def check_layer(layer: LayerChoice, num_layers: int) -> None:
    """Refuse layers that this model does not have."""
    if isinstance(layer, int) and not -num_layers - 1 <= layer <= num_layers:
        raise BertkitError(f"no layer {layer}: this model has 0 (embeddings) to {num_layers}, or -1 for the last")
    if isinstance(layer, str) and num_layers < LAST_FOUR:
        raise BertkitError(f"{layer!r} needs four layers and this model has {num_layers}; give a layer's number")


def pool(hidden_TD: Tensor, batch: PackedBatch, pooling: Pooling) -> Tensor:
    """One vector a sequence, [N, D], over its real tokens; there is no padding that could leak in."""
    if pooling == "cls":
        return hidden_TD if hidden_TD.shape[0] == len(batch) else hidden_TD[batch.cls_rows]
    lengths = batch.cu_seqlens.diff().long()
    # float32 sums: half precision would lose digits over hundreds of tokens
    return torch.segment_reduce(hidden_TD.float(), pooling, lengths=lengths, axis=0)


def _merge_windows(
    vectors: Sequence[NDArray[np.float32]], windows: Sequence[Sequence[object]], pooling: Pooling
) -> Iterator[NDArray[np.float32]]:
    """One vector a text again: windows weigh by their tokens in a mean, equally as [CLS], not at all in a max."""
    start = 0
    for text_windows in windows:
        parts = vectors[start : start + len(text_windows)]
        start += len(text_windows)
        if len(parts) == 1:
            yield parts[0]
        elif pooling == "max":
            yield np.max(parts, axis=0)
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
