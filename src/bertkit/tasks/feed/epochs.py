"""One epoch of a feed: its plan and its packing, built from lengths alone, kept in memory or in a folder of arrays.

Processes share an epoch through the folder, memory-mapped, instead of planning it each. No torch here: the loader's
workers start without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from bertkit.corpus.masking import MaskingConfig
from bertkit.corpus.packing import Capacities, Packing, fit_packing, pack_epoch, stretch_packing
from bertkit.corpus.pairs import Negatives, PairConfig
from bertkit.corpus.plan.epoch import Plan, plan_epoch
from bertkit.corpus.plan.layout import Layout
from bertkit.corpus.random import permute
from bertkit.errors import BertkitError

ObjectiveName = Literal["mlm", "ltr"]
OBJECTIVES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)
ORDER_KEY = 2  # keeps the random numbers of the order apart from those of plans and masks


@dataclass(frozen=True)
class FeedConfig:
    """What examples are like, and the shape of a micro-batch; capacities left at None are chosen by the feed."""

    max_length: int = 128
    tokens_per_batch: int = 8192
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    nsp: bool = True
    negatives: Negatives = "strangers"
    short_share: float = 0.1
    shifted_share: float = 0.0  # of rows, which begin at any position and not at 0
    num_positions: int = 0  # that shifted rows may reach; 0: max_length, so that full rows cannot be shifted
    random_next_share: float = 0.5
    passes: tuple[float, ...] | None = None  # of an epoch through each shard of the store; None: one
    seed: int = 0
    num_sequences: int | None = None
    num_masked: int | None = None
    objective: ObjectiveName = "mlm"  # ltr: every token is predicted from those before it, and none is masked

    def __post_init__(self) -> None:
        if self.tokens_per_batch < self.max_length:
            raise BertkitError(
                f"tokens_per_batch {self.tokens_per_batch} holds not even one sequence of {self.max_length}; raise it"
            )
        if not 0.0 <= self.shifted_share <= 1.0:
            raise BertkitError(f"shifted_share is {self.shifted_share}; it must lie in 0 to 1")
        if self.pairs.max_length > np.iinfo(np.uint16).max:
            raise BertkitError(f"max_length {self.max_length} is beyond any model; give at most 65535")

    @property
    def reach(self) -> int:
        """Every position lies below it."""
        return max(self.max_length, self.num_positions if self.shifted_share else 0)

    @property
    def pairs(self) -> PairConfig:
        """The part that the plan needs, checked."""
        return PairConfig(self.max_length, self.short_share, self.random_next_share, self.nsp, self.negatives)


@dataclass(frozen=True)
class Epoch:
    """A plan and which of its examples form which micro-batch."""

    plan: Plan
    packing: Packing


def build_epoch(
    layout: Layout, config: FeedConfig, epoch: int, size: int | None, capacities: Capacities | None
) -> Epoch:
    """Plan and pack an epoch, into `size` micro-batches that the capacities hold."""
    pairs = config.pairs
    plan = plan_epoch(layout, pairs, seed=config.seed, epoch=epoch)
    lengths = plan.a_lengths + plan.b_lengths + np.uint16(pairs.num_special)
    order = permute(len(plan), ORDER_KEY, config.seed, epoch)
    packing = pack_epoch(lengths, order, config.tokens_per_batch)
    packing = packing if size is None else stretch_packing(packing, size)
    if capacities is not None:
        packing = fit_packing(packing, config.masking, capacities, pairs.num_special)
    return Epoch(plan, packing)


def save_epoch(epoch: Epoch, folder: Path) -> None:
    """Write an epoch aside and rename it, so that a folder that is there is whole."""
    aside = folder.with_name(folder.name + ".part")
    aside.mkdir(parents=True)
    for prefix, part in (("plan", epoch.plan), ("packing", epoch.packing)):
        for column in fields(part):
            np.save(aside / f"{prefix}.{column.name}.npy", getattr(part, column.name), allow_pickle=False)
    aside.rename(folder)


def load_epoch(folder: Path) -> Epoch:
    """Map an epoch that `save_epoch` wrote."""

    def columns(prefix: str, names: Sequence[str]) -> list[np.ndarray]:
        # plain views: slicing a memmap object is several times slower
        return [np.asarray(np.load(folder / f"{prefix}.{name}.npy", mmap_mode="r")) for name in names]

    plan = Plan(*columns("plan", [column.name for column in fields(Plan)]))
    return Epoch(plan, Packing(*columns("packing", [column.name for column in fields(Packing)])))
