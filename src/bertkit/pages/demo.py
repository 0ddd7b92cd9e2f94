"""The demo page: what one short, real training did.

In: a DemoReport filled by that training. Out: HTML. Nothing on the page comes from elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from bertkit.pages.attention import Attention, attention_body, attention_json
from bertkit.pages.frame import Html, fill, frame


@dataclass(frozen=True)
class CurvePoint:
    """The losses at one step; the held-out MLM loss where it was measured."""

    step: int
    loss: float
    mlm_loss: float
    nsp_loss: float
    heldout_mlm_loss: float | None = None


@dataclass(frozen=True)
class Guess:
    """A token and its probability."""

    token: str
    p: float


@dataclass(frozen=True)
class FilledText:
    """One text with a [MASK], and the best tokens for it before and after training."""

    text: str
    before: Sequence[Guess]
    after: Sequence[Guess]


@dataclass(frozen=True)
class PairExample:
    """Two sentences, the probability that the second follows, and, where it is known, whether it does."""

    a: str
    b: str
    p_next: float
    is_next: bool | None = None


@dataclass(frozen=True)
class DemoReport:
    """Everything that the demo page shows, from one training run."""

    config_name: str  # such as "tiny"
    num_parameters: int
    num_layers: int
    hidden_size: int
    num_heads: int
    vocab_size: int
    num_sentences: int
    num_words: int
    seed: int
    num_steps: int
    seconds: float  # of training
    curve: Sequence[CurvePoint]
    unigram_loss: float  # held-out MLM loss of always guessing by frequency
    nsp_accuracy: float  # on held-out pairs, half of them next
    fill_mask: Sequence[FilledText]
    next_sentence: Sequence[PairExample]
    attention: Attention
    attention_layer: int | None = None  # shown first, from 1
    attention_head: int | None = None  # from 1; None for the mean
    versions: Mapping[str, str] | None = None  # {"bertkit": ..., "torch": ..., "python": ...}

    def to_json(self) -> dict[str, Any]:
        """Plain types; the attention in the form that the page reads."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("curve", "fill_mask", "next_sentence"):
            plain[name] = [asdict(row) for row in plain[name]]
        shown = {"layer": plain.pop("attention_layer"), "head": plain.pop("attention_head")}
        return {**plain, "versions": dict(self.versions or {}), "attention": attention_json(self.attention, **shown)}


def demo_page(report: DemoReport) -> str:
    """The page of one demo run."""
    label = f"A {report.config_name} BERT, {report.num_parameters:,} parameters, seed {report.seed}."
    warning = (
        f"A tiny model trained for {report.seconds:.0f} seconds on {report.num_words:,} words; not a model to use. "
        "Every figure below comes from this one run."
    )
    body = Html(fill("demo", chart=fill("chart")) + attention_body("data.attention"))
    return frame("BERT learns, in front of you", label, body, report.to_json(), warning=warning)
