"""Everything that decides a fine-tuning run (section A.3 of the paper), and the paper's grid of such runs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import torch

from bertkit.errors import BertkitError
from bertkit.tokenizer import LongPolicy
from bertkit.training.optimizers.build import OptimizerConfig
from bertkit.training.precision import Precision, check_precision, narrow_type, resolve_precision
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.toml_text import parse_assignment, to_dataclass

RATES = (5e-5, 3e-5, 2e-5)
BATCH_SIZES = (16, 32)
EPOCHS = (2, 3, 4)


@dataclass(frozen=True)
class FinetuneConfig:
    """The paper's middle: batch 32, rate 3e-5, 3 epochs, 10 % warm-up."""

    learning_rate: float = 3e-5
    batch_size: int = 32  # examples a step, however they are cut into micro-batches
    epochs: int = 3
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    epsilon: float = 1e-6  # of Adam
    clip_norm: float = 1.0
    dropout: float | None = None  # None: what the checkpoint says of itself
    seed: int = 0
    max_length: int = 0  # 0: as many tokens as the model has positions
    long: LongPolicy = "window"
    stride: int = -1  # tokens that windows of a long text share; -1: a quarter of a window
    eval_every: int = 0  # steps between looks at the development set; 0: every epoch
    save_every: int = 0  # steps between checkpoints; 0: with every look
    patience: int = 0  # looks without a better score before training stops; 0: never
    restarts: int = 2  # of a collapsed run, each with another seed
    metric: str = ""  # what the best checkpoint is chosen by; empty: the task's own
    micro_tokens: int = 0  # tokens computed at once; 0: what this device's memory allows
    class_weights: Literal["", "balanced"] = ""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Precision = "auto"
    graphs: bool = True  # small batches on CUDA as recorded graphs; a seed's bits are the same without
    log_every: int = 10

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "log_every"):
            if getattr(self, name) < 1:
                raise BertkitError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("seed", "max_length", "eval_every", "save_every", "patience", "restarts", "micro_tokens"):
            if getattr(self, name) < 0:
                raise BertkitError(f"{name} is {getattr(self, name)}; it must not be negative")
        if self.dropout is not None and not 0.0 <= self.dropout < 1.0:
            raise BertkitError(f"dropout is {self.dropout}; it must be at least 0 and below 1")
        if self.stride < -1:
            raise BertkitError(
                f"stride is {self.stride}; give the tokens that windows share, or -1 for a quarter of them"
            )
        for name, choices in (
            ("long", ("error", "truncate", "window")),
            ("class_weights", ("", "balanced")),
        ):
            if getattr(self, name) not in choices:
                known = ", ".join(repr(choice) for choice in choices)
                raise BertkitError(f"{name} is {getattr(self, name)!r}; choose one of {known}")
        check_precision(self.precision)
        _ = self.optimizer, self.schedule  # checked when made

    @property
    def optimizer(self) -> OptimizerConfig:
        """AdamW, bias-corrected."""
        return OptimizerConfig(
            learning_rate=self.learning_rate, weight_decay=self.weight_decay, epsilon=self.epsilon, beta2=0.999
        )

    @property
    def schedule(self) -> ScheduleConfig:
        """Linearly up in the warm-up, then down to zero."""
        return ScheduleConfig(warmup_share=self.warmup_share)

    @property
    def cell(self) -> str:
        """The name of this run among others of its grid."""
        return f"batch{self.batch_size}-rate{self.learning_rate:g}-epochs{self.epochs}-seed{self.seed}"

    def narrow_type(self, device: torch.device) -> torch.dtype | None:
        """What `precision` means on this device; None: float32."""
        return narrow_type(resolve_precision(self.precision, device))


def make_config(values: dict[str, Any]) -> FinetuneConfig:
    """A config from plain values; a key that nobody knows fails with the nearest right one."""
    return to_dataclass(FinetuneConfig, values, owner="fine-tuning")


def parse_settings(assignments: Iterable[str]) -> dict[str, Any]:
    """`key=value` as given after --set."""
    return dict(parse_assignment(assignment, "learning_rate=2e-5") for assignment in assignments)


def grid_of(config: FinetuneConfig, grid: str = "", seeds: int = 1) -> Iterator[FinetuneConfig]:
    """All runs that are asked for: seeds, times the 18 of the paper's grid."""
    if grid not in ("", "paper"):
        raise BertkitError(f"no grid is named {grid!r}; there is 'paper'")
    if seeds < 1:
        raise BertkitError(f"seeds is {seeds}; it must be at least 1")
    cells = [config]
    if grid:
        cells = [
            replace(config, batch_size=size, learning_rate=rate, epochs=epochs)
            for size, rate, epochs in product(BATCH_SIZES, RATES, EPOCHS)
        ]
    for cell in cells:
        for seed in range(config.seed, config.seed + seeds):
            yield replace(cell, seed=seed)
