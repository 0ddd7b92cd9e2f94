"""What the suite measures and how: one TOML file (suite.toml beside this one, unless another is named)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.tokenizer import LongPolicy
from bertkit.training.finetuning.config import FinetuneConfig
from bertkit.training.toml_text import read_toml, to_dataclass, unknown_key

HELD_OUT, BLIMP, WORD_IN_CONTEXT = "held-out", "BLiMP", "word-in-context"
UNTRAINED = (HELD_OUT, BLIMP, WORD_IN_CONTEXT)  # what is measured without fine-tuning
ONLY_AT_THE_END = 10**9  # steps between looks: so the one look is at the last step


@dataclass(frozen=True)
class HeldOutConfig:
    """Held-out text, with the masks that evaluation always has."""

    file: str = "validation.txt"  # in corpus/, packed or not
    lengths: tuple[int, ...] = (128, 512)
    tokens_per_batch: int = 8192

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 8 or self.tokens_per_batch < max(self.lengths):
            raise BertkitError("held_out: lengths are at least 8 tokens, and tokens_per_batch holds the longest")


@dataclass(frozen=True)
class FinetunedTask:
    """One task that models are fine-tuned for, and its one setting."""

    name: str
    task: str  # classification, regression, tagging or answering
    train: tuple[str, ...]  # files under tasks/
    test: str
    metric: str
    scored_on: str = "dev"
    columns: dict[str, Any] = field(default_factory=dict)  # options of the reader
    learning_rate: float = 1e-4
    batch_size: int = 32
    epochs: int = 5
    warmup_share: float = 0.1
    max_length: int = 128
    long: LongPolicy = "truncate"

    def __post_init__(self) -> None:
        if not self.train or not self.name:
            raise BertkitError(f"the suite's task {self.name!r} needs a name and files to train on")
        self.config(0, self.max_length)  # checked when made

    def config(self, seed: int, max_positions: int, device: str = "auto", **others: Any) -> FinetuneConfig:
        """The run of one seed: no restarts, and the last step's scores; others are further settings of it."""
        return FinetuneConfig(
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            epochs=self.epochs,
            warmup_share=self.warmup_share,
            max_length=min(self.max_length, max_positions),
            long=self.long,
            metric=self.metric,
            seed=seed,
            eval_every=ONLY_AT_THE_END,
            restarts=0,
            device=device,  # type: ignore[arg-type]  # checked where it is used
            log_every=50,
            **others,
        )


@dataclass(frozen=True)
class Suite:
    """All parts of the suite."""

    seeds: int = 5
    dropout: float = 0.1
    held_out: HeldOutConfig = field(default_factory=HeldOutConfig)
    tasks: tuple[FinetunedTask, ...] = ()

    def __post_init__(self) -> None:
        names = self.names
        if len(set(names)) < len(names):
            raise BertkitError("two parts of the suite have the same name; give each its own")
        if self.seeds < 1:
            raise BertkitError(f"seeds is {self.seeds}; it must be at least 1")
        if not 0.0 <= self.dropout < 1.0:
            raise BertkitError(f"dropout is {self.dropout}; it must be at least 0 and below 1")

    @property
    def names(self) -> tuple[str, ...]:
        """Of all parts, in the order of the report."""
        return (*UNTRAINED, *(task.name for task in self.tasks))

    def task(self, name: str) -> FinetunedTask:
        """The fine-tuned task of this name."""
        return next(task for task in self.tasks if task.name == name)

    def choose(self, names: Sequence[str]) -> tuple[str, ...]:
        """The parts asked for, in the suite's order, whatever their letters' case; all if none is named."""
        known = {name.lower(): name for name in self.names}
        for name in names:
            if name.lower() not in known:
                raise BertkitError(unknown_key(name, name, self.names, "no part"))
        wanted = {known[name.lower()] for name in names}
        return tuple(name for name in self.names if not wanted or name in wanted)


def read_suite(path: str | Path | None = None, *, seeds: int | None = None) -> Suite:
    """The suite of a TOML file, or the one that comes with bertkit."""
    with resources.as_file(resources.files(__package__).joinpath("suite.toml")) as own:
        suite = to_dataclass(Suite, read_toml(Path(path) if path else own))
    return suite if seeds is None else replace(suite, seeds=seeds)
