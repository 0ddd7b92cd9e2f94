"""Everything that decides how sentence vectors are tuned."""

import math
from dataclasses import dataclass, field
from typing import Literal

from bertkit.errors import BertkitError
from bertkit.model.pooling import Pooling
from bertkit.tasks.sentence_pairs import LOSSES, PairColumns
from bertkit.training.vectors.loss import SCALE


@dataclass(frozen=True)
class VectorTraining:
    """The defaults suit a pre-trained encoder and some thousand pairs."""

    loss: Literal["auto", "contrastive", "cosent", "mse"] = "auto"
    pooling: Pooling | None = None  # None: the checkpoint's own style, else the masked mean
    normalize: bool | None = None
    learning_rate: float = 2e-5
    batch_size: int = 32
    epochs: int = 4
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    scale: float = SCALE
    max_length: int | None = None  # tokens; None: all positions
    long: Literal["truncate", "error"] = "truncate"
    seed: int = 0
    device: str = "auto"
    columns: PairColumns = field(default_factory=PairColumns)

    def __post_init__(self) -> None:
        if self.loss not in ("auto", *LOSSES):
            raise BertkitError(f"unknown loss {self.loss!r}; choose one of auto, {', '.join(LOSSES)}")
        for name in ("learning_rate", "scale"):
            if not 0 < getattr(self, name) < math.inf:
                raise BertkitError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.epochs < 1 or self.batch_size < 2:
            raise BertkitError("tuning needs one epoch at least, and two pairs a batch: pairs learn from each other")
        if self.long not in ("truncate", "error"):
            raise BertkitError(f"long is {self.long!r}; texts of pairs are cut (truncate) or refused (error)")
