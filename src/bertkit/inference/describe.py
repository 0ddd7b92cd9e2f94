"""A checkpoint told in plain words: sizes, heads, vocabulary, and the load report."""

from dataclasses import asdict, dataclass
from typing import Any

from bertkit.inference.loading import open_checkpoint
from bertkit.model import num_parameters
from bertkit.model.config import PRESETS, BertConfig


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

    def rows(self) -> list[tuple[str, str]]:
        """Name and value, for a table."""
        c = self.config
        shape = f"{c['num_layers']} layers, {c['hidden_size']} hidden, {c['num_heads']} heads"
        return [
            ("size", f"{self.size} ({shape})"),
            ("parameters", f"{self.parameters:,}"),
            ("precision", self.dtype),
            ("heads", ", ".join(c["heads"]) or "none"),
            ("labels", ", ".join(c["labels"]) or "none"),
            ("longest input", f"{c['max_positions']} tokens"),
            ("vocabulary", f"{self.vocab_size:,} pieces, {'uncased' if self.lowercase else 'cased'}"),
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
    )


def size_name(config: BertConfig) -> str:
    """The preset with this shape, whatever its vocabulary."""
    shape = (config.num_layers, config.hidden_size, config.num_heads)
    standard = config.intermediate_size == 4 * config.hidden_size
    return next((name for name, wanted in PRESETS.items() if wanted == shape and standard), "custom")
