"""A checkpoint told in plain words: sizes, heads, vocabulary, and the load report."""

from dataclasses import asdict, dataclass
from typing import Any

from bertkit.inference.loading import open_checkpoint
from bertkit.model import num_parameters
from bertkit.model.config import PRESETS, BertConfig
from bertkit.model.formats.sentence_transformers import SentenceStyle


@dataclass(frozen=True)
class Description:
    """What `bertkit info` shows."""

    size: str  # the preset of this shape, or "custom"
    parameters: int
    dtype: str
    config: dict[str, Any]
    vocab_size: int
    lowercase: bool
    report: list[str]
    style: SentenceStyle | None = None  # how sentence vectors are made, where the checkpoint says it

    def rows(self) -> list[tuple[str, str]]:
        """Name and value, for a table."""
        c = self.config
        shape = f"{c['num_layers']} layers, {c['hidden_size']} hidden, {c['num_heads']} heads"
        told = [("sentence vectors", style_in_words(self.style))] if self.style else []
        told += [("reads", "left to right")] if c["is_causal"] else []
        return [
            ("size", f"{self.size} ({shape})"),
            ("parameters", f"{self.parameters:,}"),
            ("precision", self.dtype),
            ("heads", ", ".join(c["heads"]) or "none"),
            ("labels", ", ".join(c["labels"]) or "none"),
            ("longest input", f"{c['max_positions']} tokens"),
            ("vocabulary", f"{self.vocab_size:,} pieces, {'uncased' if self.lowercase else 'cased'}"),
            *told,
        ]


def describe(source: str) -> Description:
    """Open a checkpoint as it is stored and say what it holds."""
    bert = open_checkpoint(source, dtype=None)
    return Description(
        size=size_name(bert.config),
        parameters=num_parameters(bert.config),
        dtype=str(bert.model.encoder.embeddings.token.weight.dtype).removeprefix("torch."),
        config=asdict(bert.config),
        vocab_size=bert.tokenizer.vocab_size,
        lowercase=bert.tokenizer.lowercase,
        report=[] if bert.report is None else bert.report.lines(),
        style=bert.style,
    )


def style_in_words(style: SentenceStyle) -> str:
    """How sentence vectors are made."""
    scaled = ", scaled to length 1" if style.normalize else ""
    length = f", up to {style.max_length} tokens" if style.max_length else ""
    return f"{style.pooling}{scaled}{length}"


def size_name(config: BertConfig) -> str:
    """The preset with this shape, whatever its vocabulary."""
    shape = (config.num_layers, config.hidden_size, config.num_heads)
    standard = config.intermediate_size == 4 * config.hidden_size
    return next((name for name, wanted in PRESETS.items() if wanted == shape and standard), "custom")
