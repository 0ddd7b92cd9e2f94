"""Masked language modelling's task for one sequence (section 3.1, task 1 of the paper).

In: token ids and which of them may be masked. Out: the ids the model sees, the chosen positions, what stood
there, and how each was replaced: 80 % by [MASK], 10 % by a random token, 10 % left as they were.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import BertkitError


class Replacement(IntEnum):
    """What the model sees at a chosen position."""

    MASK = 0
    RANDOM = 1
    SAME = 2


@dataclass(frozen=True)
class MaskingConfig:
    """How many tokens are chosen, and in which shares they are replaced; the rest of the shares stays the same."""

    rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise BertkitError(f"masking rate is {self.rate}; it must be above 0 and at most 1")
        if min(self.mask_share, self.random_share) < 0.0 or self.mask_share + self.random_share > 1.0:
            raise BertkitError(f"masking shares {self.mask_share} and {self.random_share} must lie in 0 to 1 together")


@dataclass(frozen=True)
class MaskedSequence:
    """One sequence with its MLM task."""

    token_ids: NDArray[np.int64]  # [L] what the model sees
    positions: NDArray[np.int64]  # [M] the chosen places, ascending
    targets: NDArray[np.int64]  # [M] what stood there
    replacements: NDArray[np.int64]  # [M] a Replacement each


def generator(*key: int) -> np.random.Generator:
    """A random stream that depends on its key alone, such as (seed, epoch, example)."""
    # The length goes in too: numpy's seed sequence takes (1, 2) and (1, 2, 0) for the same.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((len(key), *key))))


def mask_tokens(
    token_ids: NDArray[np.int64],
    maskable: NDArray[np.bool_],
    *,
    mask_id: int,
    ordinary_ids: NDArray[np.int64],
    random: np.random.Generator,
    config: MaskingConfig | None = None,
) -> MaskedSequence:
    """Choose max(1, round(rate x maskable)) places and replace them; random tokens come from `ordinary_ids`."""
    config = config or MaskingConfig()
    candidates = np.flatnonzero(maskable)
    count = min(len(candidates), max(1, round(config.rate * len(candidates))))
    positions = np.sort(random.permutation(candidates)[:count])
    thresholds = (config.mask_share, config.mask_share + config.random_share)
    replacements = np.searchsorted(thresholds, random.random(count), side="right")
    seen = token_ids.copy()
    seen[positions[replacements == Replacement.MASK]] = mask_id
    is_random = replacements == Replacement.RANDOM
    seen[positions[is_random]] = random.choice(ordinary_ids, size=int(is_random.sum()))
    return MaskedSequence(seen, positions, token_ids[positions], replacements)
