"""An endless stream of pre-training batches from documents in memory, each a function of (seed, epoch)."""

from collections.abc import Iterator, Sequence

import numpy as np

from bertkit.corpus.masking import MaskingConfig, generator
from bertkit.corpus.pairs import Document, PairConfig, draw_pairs
from bertkit.tasks.examples import PretrainingExample, collate, make_examples, ordinary_ids
from bertkit.tasks.pretraining import PretrainingBatch
from bertkit.tokenizer import Tokenizer


def tokenize_documents(documents: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[list[list[int]]]:
    """Every sentence as token ids, without special tokens."""
    return [tokenizer.encode_ids(sentences, special=False) for sentences in documents]


def draw_examples(
    documents: Sequence[Document],
    tokenizer: Tokenizer,
    pairs: PairConfig,
    random: np.random.Generator,
    masking: MaskingConfig | None = None,
) -> list[PretrainingExample]:
    """One epoch: new pairs and new masks, in a random order."""
    drawn = list(draw_pairs(documents, pairs, random))  # already in a random order
    return make_examples(drawn, tokenizer, ordinary_ids(tokenizer), random, masking)


def stream_batches(
    documents: Sequence[Document], tokenizer: Tokenizer, pairs: PairConfig, *, batch_size: int, seed: int
) -> Iterator[PretrainingBatch]:
    """Batches for ever; every epoch draws anew."""
    epoch = 0
    while True:
        examples = draw_examples(documents, tokenizer, pairs, generator(seed, epoch))
        for start in range(0, len(examples), batch_size):
            yield collate(examples[start : start + batch_size])
        epoch += 1
