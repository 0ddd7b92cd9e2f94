"""Sentence pairs become pre-training batches: special tokens around them, masks drawn, laid end to end."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.corpus.masking import MaskedSequence, MaskingConfig, mask_tokens
from bertkit.corpus.pairs import SentencePair
from bertkit.model.packed import pack
from bertkit.tasks.pretraining import IS_NEXT, NOT_NEXT, PretrainingBatch
from bertkit.tokenizer import Tokenizer


@dataclass(frozen=True)
class PretrainingExample:
    """[CLS] A [SEP] B [SEP] with its masks."""

    masked: MaskedSequence
    segment_ids: list[int]
    is_next: bool


def ordinary_ids(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Everything in the vocabulary but the special tokens: what a random replacement is drawn from."""
    return np.setdiff1d(np.arange(tokenizer.vocab_size), np.array(sorted(tokenizer.special_ids)))


def mask_input(
    token_ids: NDArray[np.int64],
    tokenizer: Tokenizer,
    ordinary: NDArray[np.int64],
    random: np.random.Generator,
    masking: MaskingConfig | None = None,
) -> MaskedSequence:
    """Draw the masks of one model input; special tokens are never masked."""
    maskable = ~np.isin(token_ids, list(tokenizer.special_ids))
    return mask_tokens(
        token_ids, maskable, mask_id=tokenizer.mask_id, ordinary_ids=ordinary, random=random, config=masking
    )


def make_example(
    pair: SentencePair,
    tokenizer: Tokenizer,
    ordinary: NDArray[np.int64],
    random: np.random.Generator,
    masking: MaskingConfig | None = None,
) -> PretrainingExample:
    """Frame a pair with special tokens and draw its masks."""
    ids = np.array([tokenizer.cls_id, *pair.a, tokenizer.sep_id, *pair.b, tokenizer.sep_id], dtype=np.int64)
    segments = [0] * (len(pair.a) + 2) + [1] * (len(pair.b) + 1)
    return PretrainingExample(mask_input(ids, tokenizer, ordinary, random, masking), segments, pair.is_next)


def collate(examples: Sequence[PretrainingExample]) -> PretrainingBatch:
    """Lay examples end to end."""
    inputs = pack([example.masked.token_ids.tolist() for example in examples], [e.segment_ids for e in examples])
    starts = inputs.cls_rows.tolist()
    positions = [example.masked.positions + start for example, start in zip(examples, starts, strict=True)]
    targets = [example.masked.targets for example in examples]
    return PretrainingBatch(
        inputs=inputs,
        masked_positions=torch.from_numpy(np.concatenate(positions)),
        masked_token_ids=torch.from_numpy(np.concatenate(targets)),
        next_labels=torch.tensor([IS_NEXT if example.is_next else NOT_NEXT for example in examples]),
    )
