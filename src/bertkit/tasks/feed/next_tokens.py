"""Left-to-right language modelling's task, in the form of the masked one: every ordinary token is predicted.

In: token ids laid end to end. Out: the ids as they are, and for each token that masking could choose, the place before
it, where the model has seen all that precedes it. The first place of a sequence is [CLS], so each token has such a place.
"""

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.masking import MaskedSequence, MaskingConfig, Replacement

EVERY_TOKEN = MaskingConfig(rate=1.0, mask_share=0.0, random_share=0.0)  # what is counted: all of them, none replaced


def next_tokens(token_ids: NDArray[np.int64], maskable: NDArray[np.bool_]) -> MaskedSequence:
    """Positions that predict, and what comes after each."""
    targets = np.flatnonzero(maskable)
    same = np.full(len(targets), Replacement.SAME, dtype=np.int64)
    return MaskedSequence(token_ids, targets - 1, token_ids[targets], same, np.ones(len(targets)))
