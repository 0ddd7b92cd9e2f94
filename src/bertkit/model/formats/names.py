"""The one table between bertkit's parameter names, Hugging Face's and Google's (TensorFlow 1).

Query, key and value are three foreign tensors and one native one. Google's `kernel`s are transposed. Foreign names
come in spellings (`gamma`, no `bert.` prefix); `canonical` brings them to the one that the table has.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from bertkit.model.config import BertConfig, Head

PREFIX = "bert."
NUM_PARTS = 3  # query, key, value
DECODER = "cls.predictions.decoder.weight"
DECODER_BIAS = "cls.predictions.decoder.bias"
TOKEN_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
CLASSIFIER = "classifier.weight"


@dataclass(frozen=True)
class Name:
    """One foreign tensor and its place in the native model."""

    native: str
    huggingface: str
    google: str | None  # None: Google's layout has no such tensor
    part: int | None = None  # which third of a fused query-key-value

    @property
    def head(self) -> str:
        """The head that it belongs to, or "encoder"."""
        return self.native.partition(".")[0]

    @property
    def is_transposed(self) -> bool:
        """Whether Google stores it as inputs by outputs."""
        return self.google is not None and self.google.endswith("/kernel")

    def at_layer(self, layer: int) -> "Name":
        """The same tensor of one layer."""
        google = self.google and self.google.replace("#", str(layer))
        native, huggingface = (name.replace("#", str(layer)) for name in (self.native, self.huggingface))
        return replace(self, native=native, huggingface=huggingface, google=google)


def _dense(native: str, huggingface: str, google: str, part: int | None = None) -> tuple[Name, Name]:
    return (
        Name(f"{native}.weight", f"{huggingface}.weight", f"{google}/kernel", part),
        Name(f"{native}.bias", f"{huggingface}.bias", f"{google}/bias", part),
    )


def _norm(native: str, huggingface: str, google: str) -> tuple[Name, Name]:
    return (
        Name(f"{native}.weight", f"{huggingface}.weight", f"{google}/gamma"),
        Name(f"{native}.bias", f"{huggingface}.bias", f"{google}/beta"),
    )


def _output(native: str, huggingface: str, google: str) -> tuple[Name, Name]:
    """A last layer, which Google keeps as outputs by inputs, like PyTorch."""
    return (
        Name(f"{native}.weight", f"{huggingface}.weight", f"{google}output_weights"),
        Name(f"{native}.bias", f"{huggingface}.bias", f"{google}output_bias"),
    )


EMBEDDINGS = (
    Name("encoder.embeddings.token.weight", TOKEN_EMBEDDINGS, "bert/embeddings/word_embeddings"),
    Name(
        "encoder.embeddings.segment.weight",
        "bert.embeddings.token_type_embeddings.weight",
        "bert/embeddings/token_type_embeddings",
    ),
    Name(
        "encoder.embeddings.position.weight",
        "bert.embeddings.position_embeddings.weight",
        "bert/embeddings/position_embeddings",
    ),
    *_norm("encoder.embeddings.norm", "bert.embeddings.LayerNorm", "bert/embeddings/LayerNorm"),
)

_NATIVE, _HF, _GOOGLE = "encoder.layers.#", "bert.encoder.layer.#", "bert/encoder/layer_#"
LAYER = (
    *_dense(f"{_NATIVE}.qkv", f"{_HF}.attention.self.query", f"{_GOOGLE}/attention/self/query", part=0),
    *_dense(f"{_NATIVE}.qkv", f"{_HF}.attention.self.key", f"{_GOOGLE}/attention/self/key", part=1),
    *_dense(f"{_NATIVE}.qkv", f"{_HF}.attention.self.value", f"{_GOOGLE}/attention/self/value", part=2),
    *_dense(f"{_NATIVE}.attention_output", f"{_HF}.attention.output.dense", f"{_GOOGLE}/attention/output/dense"),
    *_norm(f"{_NATIVE}.attention_norm", f"{_HF}.attention.output.LayerNorm", f"{_GOOGLE}/attention/output/LayerNorm"),
    *_dense(f"{_NATIVE}.up", f"{_HF}.intermediate.dense", f"{_GOOGLE}/intermediate/dense"),
    *_dense(f"{_NATIVE}.down", f"{_HF}.output.dense", f"{_GOOGLE}/output/dense"),
    *_norm(f"{_NATIVE}.output_norm", f"{_HF}.output.LayerNorm", f"{_GOOGLE}/output/LayerNorm"),
)

HEAD_NAMES: dict[Head, tuple[Name, ...]] = {
    "pooler": _dense("pooler", "bert.pooler.dense", "bert/pooler/dense"),
    "mlm": (
        *_dense("mlm.transform", "cls.predictions.transform.dense", "cls/predictions/transform/dense"),
        *_norm("mlm.norm", "cls.predictions.transform.LayerNorm", "cls/predictions/transform/LayerNorm"),
        Name("mlm.decoder.weight", DECODER, None),
        Name("mlm.bias", "cls.predictions.bias", "cls/predictions/output_bias"),
    ),
    "nsp": _output("nsp", "cls.seq_relationship", "cls/seq_relationship/"),
    "classifier": _output("classifier", "classifier", ""),
    "tagger": _output("tagger", "classifier", ""),
    "span": _output("span", "qa_outputs", "cls/squad/"),
}


def names_of(config: BertConfig) -> list[Name]:
    """Every foreign tensor of such a model."""
    names = list(EMBEDDINGS)
    names += [name.at_layer(layer) for layer in range(config.num_layers) for name in LAYER]
    names += names_of_heads(config.heads)
    return [name for name in names if not (config.tied_decoder and name.huggingface == DECODER)]


def names_of_heads(heads: Iterable[Head]) -> Iterator[Name]:
    """Every foreign tensor of these heads, an untied decoder included."""
    for head in heads:
        yield from HEAD_NAMES[head]


def canonical(name: str) -> str:
    """Hugging Face's present spelling of a tensor's name."""
    name = name.removeprefix("module.")  # left by DataParallel
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = PREFIX + name
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


def from_google(name: str) -> Name | None:
    """The row of a TensorFlow name; None for what is no part of BERT, such as Adam's moments."""
    layer = re.search(r"layer_(\d+)/", name)
    if layer is None:
        return _google_table().get(name)
    row = _google_table().get(name.replace(layer[0], "layer_#/", 1))
    return row and row.at_layer(int(layer[1]))


@cache
def _google_table() -> dict[str, Name]:
    rows = (*EMBEDDINGS, *LAYER, *names_of_heads(HEAD_NAMES))
    return {row.google: row for row in rows if row.google is not None}


def layer_of(name: str) -> int | None:
    """The number of the encoder layer that a canonical name belongs to."""
    found = re.match(r"bert\.encoder\.layer\.(\d+)\.", name)
    return int(found[1]) if found else None
