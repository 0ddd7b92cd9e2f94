"""A recipe: everything that decides a pre-training run, as one TOML file.

In: recipes/NAME.toml and `--set key=value`. Out: frozen dataclasses, checked; written back, resolved, as bertkit.toml
beside the checkpoints. Each table belongs to the module that it configures.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch

from bertkit.corpus.masking import MaskingConfig
from bertkit.corpus.pairs import Negatives
from bertkit.errors import BertkitError
from bertkit.model.config import PRETRAINING, BertConfig, Head, preset
from bertkit.tasks.feed.epochs import OBJECTIVES, ObjectiveName
from bertkit.tasks.feed.next_tokens import EVERY_TOKEN
from bertkit.training.checkpoints import CheckpointConfig
from bertkit.training.evaluation import EvaluationConfig
from bertkit.training.growth import GrowthConfig, check_growth
from bertkit.training.initialisation import Positions, Start, check_start
from bertkit.training.layer_watch import check_log_layers
from bertkit.training.optimizers.build import OptimizerConfig
from bertkit.training.plan import Stage, StepPlan
from bertkit.training.precision import Precision, check_precision, narrow_type, resolve_precision
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.sharding import Parallel, check_parallel
from bertkit.training.stepping import KERNELS, Kernels, LoopOptions
from bertkit.training.toml_text import read_toml, set_value, to_dataclass, to_plain, unknown_key, write_toml

NAME = "bertkit.toml"
# A resumed run may differ in these: where things lie and how often they are looked at, not what is computed.
FREE_TO_CHANGE = (
    "checkpoints.",
    "evaluation.",
    "data.store",
    "data.tokenizer",
    "data.held_out",
    "data.old_held_out",
    "data.workers",
    "log_every",
    "log_layers",
    "tensorboard",
    "device",
    "parallel",
    "precision",
    "kernels",
    "eight_bits",
    "compile",
    "deterministic",
)
NOT_CHANGEABLE = ("vocab_size", "heads", "labels", "problem", "is_causal")


@dataclass(frozen=True)
class ModelRecipe:
    """A size with changes, or an existing checkpoint to go on from."""

    size: str = "tiny"
    init: str = ""  # a checkpoint: folder, TF1 prefix or hub name; its config counts, not `size`
    start: Start = "paper"  # of a fresh model's layers: see initialisation.py; no part of the checkpoint
    positions: Positions = "drawn"  # likewise
    changes: dict[str, Any] = field(default_factory=dict)  # fields of BertConfig, such as hidden_dropout

    def __post_init__(self) -> None:
        check_start(self.start, self.positions, self.init)
        names = [f.name for f in fields(BertConfig) if f.name not in NOT_CHANGEABLE]
        for key in self.changes:
            if key not in names:
                raise BertkitError(unknown_key(f"model.changes.{key}", key, names))

    def config(self, vocab_size: int, *, next_sentence: bool, is_causal: bool = False) -> BertConfig:
        """The config of a fresh model."""
        given = {"vocab_size": vocab_size, "heads": pretraining_heads(next_sentence), "is_causal": is_causal}
        return preset(self.size, **{**self.changes, **given})


def pretraining_heads(next_sentence: bool) -> tuple[Head, ...]:
    """The heads that a run trains."""
    return PRETRAINING if next_sentence else ("mlm",)


@dataclass(frozen=True)
class DataRecipe:
    """Folders made by `bertkit prepare` and `bertkit vocab train`, relative to where the command runs."""

    store: str = ""
    tokenizer: str = ""
    held_out: str = ""  # a store that is never trained on; empty: no evaluation
    old_held_out: str = ""  # of the text that `init` was trained on, when going on with other text
    next_sentence: bool = True
    negatives: Negatives = "strangers"  # what B is where it is not next; swapped: which of two comes first
    short_share: float = 0.1  # of pairs, drawn shorter than they could be
    shifted_share: float = 0.0  # of rows of stages before the longest, which begin at any position: none is new there
    # How often an epoch reads files of the store, by name or pattern; once where none fits.
    passes: dict[str, float] = field(default_factory=dict)
    workers: int = 2  # processes that build batches ahead, for each process that trains; 0: none


@dataclass(frozen=True)
class Recipe:
    """One run.

    `objective = "ltr"` trains left to right: the same encoder under a causal mask predicts every next token by the same
    head from the same data. NSP stays as it is, but reads the last [SEP], since a causal [CLS] sees itself alone; so do
    classifiers that are fine-tuned later. Thus both objectives train the same heads on the same pairs.
    """

    steps: int | None = None
    minutes: float | None = None  # a time budget in place of steps
    objective: ObjectiveName = "mlm"
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    parallel: Parallel = "ddp"  # under torchrun: every process has all weights, or with fsdp its shards of them
    precision: Precision = "auto"
    kernels: Kernels = "auto"  # in bfloat16: our own where they run, or torch's (plain), compiled if asked for
    eight_bits: bool = False  # most products of training in eight bits; needs a Hopper GPU
    compile: bool = False
    deterministic: bool | None = None  # None: on the CPU
    log_every: int = 10
    log_layers: int = 0  # steps between looks at every layer's gradients and updates; 0: none
    tensorboard: bool = True
    model: ModelRecipe = field(default_factory=ModelRecipe)
    data: DataRecipe = field(default_factory=DataRecipe)
    stages: tuple[Stage, ...] = (Stage(),)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    growth: GrowthConfig = field(default_factory=GrowthConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise BertkitError("a recipe needs either `steps` or `minutes`: give one of them, not both")
        if not 0 < (self.steps or self.minutes or 0) < math.inf:
            raise BertkitError("`steps` or `minutes` must be above 0")
        check_precision(self.precision)
        if self.kernels not in KERNELS:
            raise BertkitError(f"unknown kernels {self.kernels!r}; choose one of {', '.join(KERNELS)}")
        if self.log_every < 1 or not 0 <= self.seed < 2**63 or self.data.workers < 0:
            raise BertkitError("log_every must be at least 1, seed and data.workers at least 0, seed below 2**63")
        check_parallel(self.parallel, self.optimizer.name)
        if self.parallel == "fsdp" and (self.kernels == "fast" or self.eight_bits):
            raise BertkitError(
                "fsdp has no fast kernels: set kernels = 'auto' and eight_bits = false, or parallel = 'ddp'"
            )
        if self.data.shifted_share and self.model.positions == "repeated":
            raise BertkitError(
                "with data.shifted_share every position is learned, and model.positions = 'repeated' would "
                "write over them; remove one"
            )
        check_log_layers(self.log_layers, self.parallel)
        check_growth(self.growth, self.num_layers, parallel=self.parallel, init=self.model.init)
        object.__setattr__(self, "stages", stages_for(self.objective, self.stages))
        _ = self.plan  # checked when made

    @property
    def num_layers(self) -> int:
        """Of a fresh model in the end, however few it begins with."""
        return self.model.config(1, next_sentence=True).num_layers

    @property
    def plan(self) -> StepPlan:
        """Which micro-batches form which step."""
        return StepPlan(self.stages, self.schedule.batch_warmup_steps, self.schedule.batch_warmup_start)

    def resolve(self, device: torch.device) -> "Recipe":
        """What `auto` means on this device."""
        precision = resolve_precision(self.precision, device)
        if precision == "float16" and self.parallel == "fsdp":
            raise BertkitError("fsdp does not scale the loss that float16 needs; set parallel = 'ddp' or a precision")
        deterministic = device.type == "cpu" if self.deterministic is None else self.deterministic
        kind: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
        return replace(self, device=kind, precision=precision, deterministic=deterministic)

    @property
    def dtype(self) -> torch.dtype | None:
        """Of products, once resolved; None: float32."""
        assert self.precision != "auto"
        return narrow_type(self.precision)

    @property
    def loop_options(self) -> LoopOptions:
        """How its steps are computed."""
        return LoopOptions(
            clip_norm=self.optimizer.clip_norm,
            log_every=self.log_every,
            seed=self.seed,
            dtype=self.dtype,
            kernels=self.kernels,
            eight_bits=self.eight_bits,
            compile=self.compile,
            workers=self.data.workers,
        )

    def to_toml(self) -> str:
        """As a file."""
        return write_toml(to_plain(self))


def stages_for(objective: ObjectiveName, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The stages, with the share of tokens that this objective predicts; left to right nothing is masked."""
    if objective not in OBJECTIVES:
        raise BertkitError(f"unknown objective {objective!r}; choose one of {', '.join(OBJECTIVES)}")
    if objective == "mlm":
        return stages
    if any(stage.masking not in (MaskingConfig(), EVERY_TOKEN) for stage in stages):
        raise BertkitError("objective ltr masks nothing: leave out the stages' masking, or choose objective = 'mlm'")
    return tuple(replace(stage, masking=EVERY_TOKEN) for stage in stages)


def read_recipe(
    path: Path,
    changes: Iterable[str] = (),
    *,
    steps: int | None = None,
    minutes: float | None = None,
    init: str | None = None,
) -> Recipe:
    """A recipe file with `key=value` changes; `steps` or `minutes`, and `init`, go over what the file says."""
    plain = read_toml(path)
    for change in changes:
        set_value(plain, change)
    asked = {key: value for key, value in (("steps", steps), ("minutes", minutes)) if value is not None}
    if asked:
        plain = {key: value for key, value in plain.items() if key not in ("steps", "minutes")} | asked
    if init is not None:
        set_value(plain, f"model.init={init}")
    return to_dataclass(Recipe, plain)


def refuse_changes(stored: Recipe, given: Recipe) -> None:
    """A resumed run computes what it began to compute; name the first key that differs."""
    before, after = flatten(to_plain(stored)), flatten(to_plain(given))
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key) and not key.startswith(FREE_TO_CHANGE):
            raise BertkitError(
                f"this run began with {key} = {before.get(key)}, not {after.get(key)}: resume with the same recipe, "
                "or begin a new run from its weights with --init"
            )


def flatten(plain: Any, prefix: str = "") -> dict[str, Any]:
    """Nested tables as `table.key`."""
    items = plain.items() if isinstance(plain, dict) else enumerate(plain)
    flat: dict[str, Any] = {}
    for key, value in items:
        nested = isinstance(value, dict | list)
        flat |= flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat
