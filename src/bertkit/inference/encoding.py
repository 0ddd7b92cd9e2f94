"""Everything the encoder says of one text or pair: each token's vector in each layer, and [CLS] raw and pooled."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.inference.batching import pack_sequences
from bertkit.inference.layers import LayerChoice, check_layer, combine_layers
from bertkit.model.attention import PlainAttention
from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig
from bertkit.tokenizer import Encoding, Tokenizer

Span = tuple[int, int]


@dataclass(frozen=True)
class EncodedText:
    """One text or pair through the encoder. Dimensions: T tokens, L layers, D hidden."""

    text_a: str
    text_b: str | None
    encoding: Encoding
    layers: NDArray[np.float32]  # [L + 1, T, D]: the embedding output, then every layer
    pooled: NDArray[np.float32] | None  # [D]: C as the NSP head reads it; None without a pooler

    @property
    def tokens(self) -> list[str]:
        """The pieces, special tokens included."""
        return list(self.encoding.tokens)

    @property
    def token_ids(self) -> list[int]:
        """Their rows in the vocabulary."""
        return list(self.encoding.ids)

    @property
    def segment_ids(self) -> list[int]:
        """0 for text A, 1 for text B."""
        return list(self.encoding.segment_ids)

    @property
    def offsets(self) -> list[Span]:
        """Where each piece stands in its own text; (0, 0) for special tokens."""
        return list(self.encoding.offsets)

    @property
    def vectors(self) -> NDArray[np.float32]:
        """T_i, the last layer's vector of every token: [T, D]."""
        last: NDArray[np.float32] = self.layers[-1]
        return last

    @property
    def cls(self) -> NDArray[np.float32]:
        """The last layer's [CLS] vector: [D]."""
        first: NDArray[np.float32] = self.layers[-1, 0]
        return first


@dataclass(frozen=True)
class AttentionMap:
    """Who looks at whom: weights[l, h, i, j] is how much token i takes from token j."""

    encoding: Encoding
    weights: NDArray[np.float32]  # [L, H, T, T]; rows sum to 1

    @property
    def tokens(self) -> list[str]:
        """The pieces, special tokens included."""
        return list(self.encoding.tokens)

    @property
    def segment_ids(self) -> list[int]:
        """0 for text A, 1 for text B."""
        return list(self.encoding.segment_ids)


@dataclass(frozen=True)
class WordVector:
    """A word of a text, where it stands, and its vector there: text[start:end] == word."""

    word: str
    start: int
    end: int
    vector: NDArray[np.float32]


@torch.inference_mode()
def encode_text(model: BertModel, tokenizer: Tokenizer, a: str, b: str | None, long: str = "error") -> EncodedText:
    """Run one text or pair and keep every layer."""
    encoding = encode_one(tokenizer, a, b, model.config, long)
    batch = pack_sequences([encoding]).to(model.device)
    states = torch.stack(model.encoder.all_layers(batch))  # [L + 1, T, D]
    summary = states[-1, model.summary_rows(batch)]
    pooled = None if model.pooler is None else model.pooled(summary)[0].float().cpu().numpy()
    return EncodedText(a, b, encoding, states.float().cpu().numpy(), pooled)


def encode_one(tokenizer: Tokenizer, a: str, b: str | None, config: BertConfig, long: str = "error") -> Encoding:
    """One encoding of one text or pair; windows make no sense here."""
    if b is not None:
        check_pairs(config)
    if long not in ("error", "truncate"):
        raise BertkitError(f"one text is encoded whole here: long must be 'error' or 'truncate', not {long!r}")
    return tokenizer.encode(a, b, max_length=config.max_positions, long=long)  # type: ignore[arg-type]


def check_pairs(config: BertConfig) -> None:
    """Refuse pairs where the model knows one segment alone."""
    if config.num_segments < 2:
        raise BertkitError("this model has one segment (type_vocab_size 1), so it takes single texts and no pairs")


@torch.inference_mode()
def attention_of(model: BertModel, tokenizer: Tokenizer, a: str, b: str | None, long: str = "error") -> AttentionMap:
    """The attention weights of every head, from the plain backend."""
    encoding = encode_one(tokenizer, a, b, model.config, long)
    batch = pack_sequences([encoding]).to(model.device)
    attention = PlainAttention(batch, is_causal=model.config.is_causal)
    model.encoder.all_layers(batch, attention)
    return AttentionMap(encoding, torch.cat(attention.weights).float().cpu().numpy())


def word_vectors(
    encoded: EncodedText, layer: LayerChoice = -1, spans: Sequence[Span] | None = None
) -> list[WordVector]:
    """The mean of each word's pieces; words as BERT's basic tokenizer cuts them, or the spans given."""
    check_layer(layer, len(encoded.layers) - 1)
    hidden = combine_layers(list(torch.from_numpy(encoded.layers)), layer).numpy()
    text, words = encoded.text_a, []
    for start, end in spans if spans is not None else _word_spans(encoded.encoding):
        rows = _rows_in(encoded.encoding, start, end)
        if not rows:
            raise BertkitError(f"no token stands in characters {start} to {end} ({text[start:end]!r})")
        words.append(WordVector(text[start:end], start, end, hidden[rows].mean(axis=0)))
    return words


def _word_spans(encoding: Encoding) -> list[Span]:
    spans: dict[int, Span] = {}
    for text_id, word_id, (start, end) in zip(encoding.text_ids, encoding.word_ids, encoding.offsets, strict=True):
        if text_id == 0 and word_id is not None:
            first, last = spans.get(word_id, (start, end))
            spans[word_id] = (min(first, start), max(last, end))
    return list(spans.values())


def _rows_in(encoding: Encoding, start: int, end: int) -> list[int]:
    """Tokens of text A that share a character with [start, end)."""
    places = zip(encoding.text_ids, encoding.offsets, strict=True)
    return [row for row, (text_id, (s, e)) in enumerate(places) if text_id == 0 and s < end and e > start]
