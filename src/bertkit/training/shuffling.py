"""Which examples form which step: every epoch once through all, in an order that depends on (seed, epoch) alone."""

import os
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.training.plan import Place


@dataclass(frozen=True)
class ShuffledSteps:
    """A plan of one micro-batch a step, for one process."""

    num_examples: int
    batch_size: int
    seed: int = 0
    salt: tuple[int, ...] = ()  # keeps the order's random numbers apart from others of the same seed

    def __post_init__(self) -> None:
        if self.num_examples < 1:
            raise BertkitError("there are no examples to train on")
        if self.batch_size < 1:
            raise BertkitError(f"batch_size is {self.batch_size}; it must be at least 1")

    @property
    def steps_an_epoch(self) -> int:
        """Steps that see every example once; the last one may be smaller."""
        return -(-self.num_examples // self.batch_size)

    def indices(self, step: int) -> NDArray[np.int64]:
        """The examples of step 0, 1, ..."""
        epoch, within = divmod(step, self.steps_an_epoch)
        order = shuffle(self.num_examples, (self.seed, epoch, *self.salt))
        return order[within * self.batch_size : (within + 1) * self.batch_size]

    def check_world(self, size: int) -> None:
        """One process alone; torchrun's others would do the same work again."""
        size = max(size, int(os.environ.get("WORLD_SIZE", "1")))
        if size > 1:
            raise BertkitError(f"this trains in one process, not in {size}; start it without torchrun")

    def locate(self, step: int, num_steps: int | None) -> Place:
        """Step k is micro-batch k."""
        return Place(0, step, 1)


@lru_cache(maxsize=2)  # a step at hand may be of one epoch, and what is built ahead of the next
def shuffle(num: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    """0 to num in an order of their own for every key."""
    order = np.random.default_rng(key).permutation(num)
    order.setflags(write=False)
    return order
