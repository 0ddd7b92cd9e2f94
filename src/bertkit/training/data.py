"""A recipe's data: its tokenizer, one feed a stage, and the held-out feeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.tasks.pretraining import IGNORED, PretrainingBatch
from bertkit.tokenizer import Tokenizer
from bertkit.training.feeds import Feed

UNIGRAM_TOKENS = 1_000_000  # of training text, counted for the guess by frequency


@dataclass(frozen=True)
class RunData:
    """What a run reads. Held-out feeds have masks of their own, always the same."""

    tokenizer: Tokenizer
    train: Sequence[Feed]  # one a stage
    held_out: Feed | None = None
    old_held_out: Feed | None = None  # of the text that an initial checkpoint was trained on
    content: str = ""  # of the store that is trained on; empty where data is given in memory
    held_out_contents: tuple[str, ...] = ()  # likewise of both held-out stores; empty for one that there is not


def unigram_loss(data: RunData, held_out: Feed, indices: Sequence[int]) -> float:
    """What guessing by frequency alone loses on the held-out masked tokens: the least that a model must beat."""
    counts = np.ones(data.tokenizer.vocab_size)
    index = 0
    while counts.sum() < UNIGRAM_TOKENS and index < 256:
        counts += np.bincount(original_ids(data.train[0].micro_batch(index)), minlength=len(counts))
        index += 1
    counts[list(data.tokenizer.special_ids)] = 1.0
    losses = -np.log(counts / counts.sum())
    targets = [held_out.micro_batch(index).masked_token_ids.numpy() for index in indices]
    return float(np.mean(np.concatenate([losses[target[target != IGNORED]] for target in targets])))


def original_ids(batch: PretrainingBatch) -> np.ndarray:
    """The tokens as they stood before masking."""
    ids = batch.inputs.token_ids.numpy().copy()
    used = batch.masked_token_ids != IGNORED
    ids[batch.masked_positions[used].numpy()] = batch.masked_token_ids[used].numpy()
    return ids
