"""Sentence pairs become pre-training batches: special tokens around them, masks drawn, laid end to end."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.corpus.masking import MaskedSequence, MaskingConfig, mask_batch, mask_tokens
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
    return mask_tokens(
        token_ids,
        _maskable(token_ids, tokenizer),
        mask_id=tokenizer.mask_id,
        ordinary_ids=ordinary,
        random=random,
        config=masking,
        continues=_continues(token_ids, tokenizer, masking),
    )


def make_examples(
    pairs: Sequence[SentencePair],
    tokenizer: Tokenizer,
    ordinary: NDArray[np.int64],
    random: np.random.Generator,
    masking: MaskingConfig | None = None,
) -> list[PretrainingExample]:
    """Frame pairs with special tokens and draw the masks of all of them at once."""
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    framed = [[cls, *pair.a, sep, *pair.b, sep] for pair in pairs]
    offsets = np.cumsum([0, *map(len, framed)])
    ids = np.array([token for tokens in framed for token in tokens], dtype=np.int64)
    masked = mask_batch(
        ids,
        _maskable(ids, tokenizer),
        offsets,
        random.integers(1 << 63, size=len(pairs), dtype=np.uint64),
        mask_id=tokenizer.mask_id,
        ordinary_ids=ordinary,
        config=masking or MaskingConfig(),
        continues=_continues(ids, tokenizer, masking),
    )
    parts = zip(pairs, _split(masked, offsets), strict=True)
    return [
        PretrainingExample(part, [0] * (len(pair.a) + 2) + [1] * (len(pair.b) + 1), pair.is_next)
        for pair, part in parts
    ]


def _maskable(token_ids: NDArray[np.int64], tokenizer: Tokenizer) -> NDArray[np.bool_]:
    return ~np.isin(token_ids, list(tokenizer.special_ids))


def _continues(
    token_ids: NDArray[np.int64], tokenizer: Tokenizer, masking: MaskingConfig | None
) -> NDArray[np.bool_] | None:
    if masking is None or not masking.whole_word:
        return None
    return np.array([tokenizer.tokens[token].startswith("##") for token in token_ids.tolist()], dtype=np.bool_)


def _split(masked: MaskedSequence, offsets: NDArray[np.int64]) -> list[MaskedSequence]:
    """One sequence each, with positions counted from its own start."""
    cuts = np.searchsorted(masked.positions, offsets).tolist()
    return [
        MaskedSequence(
            masked.token_ids[start:end],
            masked.positions[first:last] - start,
            masked.targets[first:last],
            masked.replacements[first:last],
            masked.draws[first:last],
        )
        for (start, end), (first, last) in zip(pairwise(offsets.tolist()), pairwise(cuts), strict=True)
    ]


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
