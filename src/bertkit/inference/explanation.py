"""What `explain` finds out about one input: frozen records of plain types, ready for JSON, tables and pages.

Dimensions: T tokens, D hidden.
"""

from dataclasses import asdict, dataclass
from typing import Any

Matrix = list[list[float]]


@dataclass(frozen=True)
class Piece:
    """One input token: what stands in the text, and what the model sees there."""

    position: int
    token: str
    token_id: int
    seen: str
    seen_id: int
    segment: int
    text: int | None  # 0 for text A, 1 for text B, None for the added [CLS] and [SEP]
    start: int  # characters of its own text
    end: int


@dataclass(frozen=True)
class InputEmbeddings:
    """What figure 2 adds up, for the tokens that the model sees; segment has one row a segment, all else one a token."""

    token: Matrix
    segment: Matrix
    position: Matrix
    sum: Matrix
    normalized: Matrix


@dataclass(frozen=True)
class Prediction:
    """A vocabulary entry and its probability."""

    token: str
    probability: float


@dataclass(frozen=True)
class Choice:
    """One position chosen for MLM: how it was replaced, and what the model says of it (None without an MLM head)."""

    position: int
    token: str
    seen: str
    replacement: str  # "mask", "random" or "same"
    draw: float  # the uniform number that decided it
    probability: float | None  # of the true token
    rank: int | None  # of the true token, 1 for the best
    loss: float | None  # -log probability
    top: list[Prediction]


@dataclass(frozen=True)
class Masking:
    """The MLM task of this input."""

    seed: int
    rate: float
    mask_share: float
    random_share: float
    num_maskable: int
    choices: list[Choice]


@dataclass(frozen=True)
class NextSentence:
    """The NSP task of this input."""

    p_next: float
    p_not_next: float
    is_next: bool  # the label it is judged by
    loss: float


@dataclass(frozen=True)
class Losses:
    """Means as in training; a part that does not exist is None and counts nowhere."""

    mlm: float | None
    nsp: float | None
    total: float | None
    uniform_mlm: float  # log V: the MLM loss of a model that knows nothing
    uniform_nsp: float  # log 2


@dataclass(frozen=True)
class Explanation:
    """Everything that happened to one input."""

    text_a: str
    text_b: str | None
    vocab_size: int
    num_layers: int
    num_heads: int
    hidden_size: int
    pieces: list[Piece]
    embeddings: InputEmbeddings
    masking: Masking | None
    next_sentence: NextSentence | None
    losses: Losses
    notes: list[str]  # what is absent, and why

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings."""
        return asdict(self)
