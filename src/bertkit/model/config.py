"""The shape of a BERT: six size presets and everything else that a checkpoint's config decides.

Section 3 of the paper: L layers, H hidden, A heads; base is 12/768/12 and large 24/1024/16. Google's later small
models (tiny to medium) follow the same rule, 64 dimensions a head and a feed-forward of 4 H.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from bertkit.errors import BertkitError

Head = Literal["pooler", "mlm", "nsp", "classifier", "tagger", "span"]
HEADS: tuple[Head, ...] = ("pooler", "mlm", "nsp", "classifier", "tagger", "span")
PRETRAINING: tuple[Head, ...] = ("pooler", "mlm", "nsp")
LABELLED_HEADS = ("classifier", "tagger")
Problem = Literal["single_label", "multi_label", "regression"]

ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "tanh", "silu")


@dataclass(frozen=True)
class BertConfig:
    """Sizes, rates and heads of one BERT. The defaults are BERT-base, uncased, with the pre-training heads."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    max_positions: int = 512
    num_segments: int = 2
    activation: str = "gelu"
    layer_norm_eps: float = 1e-12
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float | None = None  # None: as hidden_dropout
    initializer_range: float = 0.02
    pad_token_id: int = 0
    heads: tuple[Head, ...] = PRETRAINING
    tied_decoder: bool = True
    is_causal: bool = (
        False  # each token sees itself and what stands before it; not BERT, but what BERT is compared with
    )
    labels: tuple[str, ...] = ()  # names of the classes (classifier) or tags (tagger), by index
    problem: Problem = "single_label"

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "num_layers",
            "num_heads",
            "intermediate_size",
            "max_positions",
            "num_segments",
        ):
            if getattr(self, name) < 1:
                raise BertkitError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.hidden_size % self.num_heads:
            raise BertkitError(f"hidden_size {self.hidden_size} does not divide into {self.num_heads} heads")
        if self.activation not in ACTIVATIONS:
            raise BertkitError(f"unknown activation {self.activation!r}; choose one of {', '.join(ACTIVATIONS)}")
        for name in ("hidden_dropout", "attention_dropout", "classifier_dropout"):
            rate = getattr(self, name)
            if rate is not None and not 0.0 <= rate < 1.0:
                raise BertkitError(f"{name} is {rate}; it must be at least 0 and below 1")
        self._check_heads()

    def _check_heads(self) -> None:
        unknown = set(self.heads) - set(HEADS)
        if unknown:
            raise BertkitError(f"unknown head {sorted(unknown)[0]!r}; choose from {', '.join(HEADS)}")
        for head in ("nsp", "classifier"):
            if head in self.heads and "pooler" not in self.heads:
                raise BertkitError(f"the {head} head reads the pooled [CLS] vector: add 'pooler' to heads")
        if len(set(self.labels)) < len(self.labels):
            raise BertkitError("two labels have the same name; each output needs a name of its own")
        for head in LABELLED_HEADS:
            if head in self.heads and not self.labels:
                raise BertkitError(f"the {head} head needs labels, the names of its outputs")

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads

    def with_heads(self, heads: Iterable[Head], **changes: Any) -> "BertConfig":
        """The same encoder under other heads (their order does not matter)."""
        known = {head: rank for rank, head in enumerate(HEADS)}
        return replace(self, heads=tuple(sorted(set(heads), key=lambda head: known.get(head, -1))), **changes)


# name: (layers, hidden, heads)
PRESETS: dict[str, tuple[int, int, int]] = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}


def preset(name: str, **changes: Any) -> BertConfig:
    """The config of a named size, with any field changed: preset("tiny", vocab_size=2000)."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(PRESETS)}"
        raise BertkitError(f"no size is named {name!r}; {hint}")
    layers, hidden, heads = PRESETS[name]
    sizes = {"num_layers": layers, "hidden_size": hidden, "num_heads": heads, "intermediate_size": 4 * hidden}
    return BertConfig(**{**sizes, **changes})


def num_parameters(config: BertConfig) -> int:
    """How many weights this BERT has, from its config alone (the tied decoder counts once)."""
    hidden, inter, num_labels = config.hidden_size, config.intermediate_size, len(config.labels)
    norm = 2 * hidden
    embeddings = (config.vocab_size + config.max_positions + config.num_segments) * hidden + norm
    attention = 4 * (hidden * hidden + hidden) + norm
    feed_forward = 2 * hidden * inter + inter + hidden + norm
    decoder = config.vocab_size * (1 if config.tied_decoder else hidden + 1)
    sizes = {
        "pooler": hidden * hidden + hidden,
        "mlm": hidden * hidden + hidden + norm + decoder,
        "nsp": 2 * hidden + 2,
        "classifier": num_labels * (hidden + 1),
        "tagger": num_labels * (hidden + 1),
        "span": 2 * hidden + 2,
    }
    return embeddings + config.num_layers * (attention + feed_forward) + sum(sizes[head] for head in config.heads)
