"""One input through pre-training, step by step, with every number kept (section 3 and figure 2 of the paper).

In: a text or pair. Out: its pieces, the three embeddings and their sum, the MLM choices and what the model makes of
them, the NSP probabilities, and the losses. The numbers are those of training's own code (the tokenizer,
corpus.masking, the encoder, tasks.pretraining), with dropout off. Dimensions: T tokens, M chosen, D hidden.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.corpus.masking import MaskedSequence, MaskingConfig, Replacement, generator
from bertkit.errors import BertkitError
from bertkit.inference.encoding import encode_one
from bertkit.inference.explanation import (
    Choice,
    Explanation,
    InputEmbeddings,
    Losses,
    Masking,
    Matrix,
    NextSentence,
    Piece,
    Prediction,
)
from bertkit.model import BertModel, PackedBatch, pack
from bertkit.tasks.examples import mask_input, ordinary_ids
from bertkit.tasks.pretraining import (
    IGNORED,
    IS_NEXT,
    NOT_NEXT,
    PretrainingBatch,
    PretrainingLosses,
    pretraining_losses,
)
from bertkit.tokenizer import Encoding, Tokenizer


@torch.inference_mode()
def explain(
    model: BertModel,
    tokenizer: Tokenizer,
    a: str,
    b: str | None = None,
    *,
    mask: bool,
    seed: int,
    is_next: bool = True,
    masking: MaskingConfig | None = None,
    top_k: int = 5,
) -> Explanation:
    """Follow one text or pair through the input embeddings, masking, both heads and the loss."""
    config = model.config
    encoding = encode_one(tokenizer, a, b, config)
    masking = masking or MaskingConfig()
    random = generator(seed, 0, 0)  # seed, epoch, example
    masked = _mask(encoding, tokenizer, random, masking) if mask else None
    inputs = pack([_seen_ids(encoding, masked)], [encoding.segment_ids])
    batch = _pretraining_batch(inputs, masked, None if b is None else is_next).to(model.device)
    with _evaluating(model):
        embeddings = _embeddings(model, batch.inputs)
        losses = pretraining_losses(model, batch)
    choices = _choices(tokenizer, masked, losses.mlm_logits, top_k) if masked else []
    pair = _next_sentence(losses, is_next) if b is not None and model.nsp is not None else None
    return Explanation(
        text_a=a,
        text_b=b,
        vocab_size=config.vocab_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        hidden_size=config.hidden_size,
        pieces=_pieces(encoding, tokenizer, inputs.token_ids.tolist()),
        embeddings=embeddings,
        masking=_masking(seed, masking, sum(token not in tokenizer.special_ids for token in encoding.ids), choices)
        if masked
        else None,
        next_sentence=pair,
        losses=_mean_losses(model, losses, len(choices), pair),
        notes=_notes(model, mask, b),
    )


def _mask(
    encoding: Encoding, tokenizer: Tokenizer, random: np.random.Generator, config: MaskingConfig
) -> MaskedSequence:
    masked = mask_input(np.array(encoding.ids), tokenizer, ordinary_ids(tokenizer), random, config)
    if not len(masked.positions):
        raise BertkitError("there is no token to mask; give a text with at least one word of the vocabulary")
    return masked


def _seen_ids(encoding: Encoding, masked: MaskedSequence | None) -> list[int]:
    return list(encoding.ids) if masked is None else [int(token) for token in masked.token_ids]


def _pretraining_batch(inputs: PackedBatch, masked: MaskedSequence | None, is_next: bool | None) -> PretrainingBatch:
    empty = np.zeros(0, dtype=np.int64)
    label = IGNORED if is_next is None else IS_NEXT if is_next else NOT_NEXT
    return PretrainingBatch(
        inputs=inputs,
        masked_positions=torch.from_numpy(masked.positions if masked else empty),
        masked_token_ids=torch.from_numpy(masked.targets if masked else empty),
        next_labels=torch.tensor([label]),
    )


def _embeddings(model: BertModel, inputs: PackedBatch) -> InputEmbeddings:
    rows = model.encoder.embeddings
    token, segment = rows.token(inputs.token_ids), rows.segment(inputs.segment_ids)
    position = rows.position(inputs.position_ids)
    used = int(inputs.segment_ids.max()) + 1
    return InputEmbeddings(
        token=_matrix(token),
        segment=_matrix(rows.segment.weight[:used]),
        position=_matrix(position),
        sum=_matrix(token + segment + position),
        normalized=_matrix(rows(inputs)),
    )


def _matrix(values: Tensor) -> Matrix:
    rows: Matrix = values.float().tolist()
    return rows


def _pieces(encoding: Encoding, tokenizer: Tokenizer, seen_ids: list[int]) -> list[Piece]:
    columns = (encoding.tokens, encoding.ids, seen_ids, encoding.segment_ids, encoding.text_ids, encoding.offsets)
    return [
        Piece(position, token, token_id, tokenizer.token(seen), seen, segment, text, *span)
        for position, (token, token_id, seen, segment, text, span) in enumerate(zip(*columns, strict=True))
    ]


def _choices(tokenizer: Tokenizer, masked: MaskedSequence, logits_MV: Tensor, top_k: int) -> list[Choice]:
    rows = zip(masked.positions, masked.targets, masked.replacements, masked.draws.tolist(), strict=True)
    log_probabilities = logits_MV.float().log_softmax(-1) if logits_MV.numel() else None
    return [
        Choice(
            position=int(position),
            token=tokenizer.token(int(target)),
            seen=tokenizer.token(int(masked.token_ids[position])),
            replacement=Replacement(int(replacement)).name.lower(),
            draw=draw,
            **_judged(tokenizer, None if log_probabilities is None else log_probabilities[row], int(target), top_k),
        )
        for row, (position, target, replacement, draw) in enumerate(rows)
    ]


def _judged(tokenizer: Tokenizer, log_p_V: Tensor | None, target: int, top_k: int) -> dict[str, Any]:
    """What the model says of one position: the true token's probability, rank and loss, and the best tokens."""
    if log_p_V is None:
        return {"probability": None, "rank": None, "loss": None, "top": []}
    best = log_p_V.topk(min(top_k, len(log_p_V)))
    rows = zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
    return {
        "probability": float(log_p_V[target].exp()),
        "rank": int((log_p_V > log_p_V[target]).sum()) + 1,
        "loss": -float(log_p_V[target]),
        "top": [Prediction(_name(tokenizer, token), p) for token, p in rows],
    }


def _name(tokenizer: Tokenizer, token_id: int) -> str:
    """Some models have more rows than their vocabulary has tokens."""
    return tokenizer.token(token_id) if token_id < tokenizer.vocab_size else f"(row {token_id}, no token)"


def _masking(seed: int, config: MaskingConfig, num_maskable: int, choices: list[Choice]) -> Masking:
    return Masking(seed, config.rate, config.mask_share, config.random_share, num_maskable, choices)


def _next_sentence(losses: PretrainingLosses, is_next: bool) -> NextSentence:
    p_next, p_not_next = losses.nsp_logits.float().softmax(-1)[0].tolist()
    return NextSentence(p_next, p_not_next, is_next, float(losses.nsp_sum))


def _mean_losses(model: BertModel, losses: PretrainingLosses, num_chosen: int, pair: NextSentence | None) -> Losses:
    mlm = float(losses.mlm_sum) / num_chosen if num_chosen and model.mlm is not None else None
    nsp = None if pair is None else float(losses.nsp_sum)
    total = None if mlm is None and nsp is None else float(losses.total(num_chosen, 1))
    return Losses(mlm, nsp, total, math.log(model.config.vocab_size), math.log(2))


def _notes(model: BertModel, mask: bool, b: str | None) -> list[str]:
    notes = {
        "No tokens were chosen for MLM because masking was not asked for.": not mask,
        "This checkpoint has no MLM head, so it predicts no token and has no MLM loss.": mask and model.mlm is None,
        "One text alone is no pair, so there is no next-sentence question.": b is None,
        "This checkpoint has no NSP head, so it says nothing about the pair.": b is not None and model.nsp is None,
    }
    return [note for note, holds in notes.items() if holds]


@contextmanager
def _evaluating(model: BertModel) -> Iterator[None]:
    """Dropout off, and afterwards as it was."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
