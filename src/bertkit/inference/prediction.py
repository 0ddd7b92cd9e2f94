"""What the pre-training heads say: words for [MASK], whether B follows A, and how likely a text is.

Every function takes any number of texts; they run in token-limited batches and come back in the order given.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.inference.batching import chunked, run_in_batches
from bertkit.inference.encoding import check_pairs
from bertkit.model.bert import BertModel
from bertkit.model.packed import PackedBatch
from bertkit.tokenizer import Encoding, Tokenizer

SCORED_AT_ONCE = 512  # masked copies held at once while scoring a text


@dataclass(frozen=True)
class Candidate:
    """A token for a blank, with its probability among the whole vocabulary."""

    token: str
    token_id: int
    probability: float


@dataclass(frozen=True)
class FilledMask:
    """One [MASK] of a text: where it stands and the best tokens for it, best first."""

    start: int
    end: int
    candidates: list[Candidate]


@dataclass(frozen=True)
class PseudoLikelihood:
    """log P of each token given all others (Salazar et al., 2020); the total scores the text."""

    tokens: list[str]
    log_probabilities: list[float]

    @property
    def total(self) -> float:
        """The sum: higher is likelier; compare texts of about one length."""
        return sum(self.log_probabilities)


@torch.inference_mode()
def fill_masks(
    model: BertModel,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    *,
    top_k: int = 5,
    candidates: Sequence[str] | None = None,
) -> list[list[FilledMask]]:
    """For every text, each of its [MASK]s with its top_k tokens, or with all the given candidates ranked."""
    refuse_causal(model)
    if top_k < 1:
        raise BertkitError(f"top_k is {top_k}; it must be at least 1")
    texts = list(texts)
    allowed = None if candidates is None else candidate_ids(tokenizer, candidates)
    encodings = _encode_whole(model, tokenizer, texts)
    masks = [[row for row, token in enumerate(e.ids) if token == tokenizer.mask_id] for e in encodings]
    for text, rows in zip(texts, masks, strict=True):
        if not rows:
            raise BertkitError(f"no [MASK] in {_short(text)!r}; write [MASK] where a word is to be filled in")

    def run(batch: PackedBatch, indices: list[int]) -> list[list[FilledMask]]:
        starts = batch.cls_rows.tolist()
        rows = [start + row for start, index in zip(starts, indices, strict=True) for row in masks[index]]
        hidden = model.encoder(batch, rows=torch.tensor(rows, device=batch.token_ids.device))
        probabilities = torch.softmax(model.mlm_logits(hidden).float(), dim=-1)
        filled = iter(_rank(tokenizer, probabilities, top_k, allowed))
        return [[_place(encodings[index], row, next(filled)) for row in masks[index]] for index in indices]

    return run_in_batches(encodings, run, model.device)


def refuse_causal(model: BertModel) -> None:
    """A left-to-right model says what comes next, not what stands at a [MASK]."""
    if model.config.is_causal:
        raise BertkitError(
            "this checkpoint was trained left to right and cannot fill a [MASK]; load one trained by MLM"
        )


def candidate_ids(tokenizer: Tokenizer, words: Sequence[str]) -> list[int]:
    """The vocabulary rows of these words; each must be one piece."""
    if isinstance(words, str) or not words:
        raise BertkitError(f"candidates are {words!r}; give a list of words, such as ['milk', 'bread']")
    ids = []
    for word in words:
        pieces = tokenizer.encode(word).ids[1:-1]
        if len(pieces) != 1 or pieces[0] == tokenizer.unk_id:
            shown = " ".join(tokenizer.token(piece) for piece in pieces)
            raise BertkitError(
                f"{word!r} is not one piece of this vocabulary (it is {shown or 'nothing'}); one [MASK] holds one piece"
            )
        ids.append(pieces[0])
    return ids


def _rank(
    tokenizer: Tokenizer, probabilities: torch.Tensor, top_k: int, allowed: list[int] | None
) -> list[list[Candidate]]:
    # Some models have more rows than their vocabulary has tokens.
    pool = torch.arange(tokenizer.vocab_size) if allowed is None else torch.tensor(allowed)
    count = min(top_k, len(pool)) if allowed is None else len(pool)
    values, places = probabilities[:, pool.to(probabilities.device)].topk(count, dim=-1)
    ids = pool[places.cpu()]
    rows = zip(ids.tolist(), values.tolist(), strict=True)
    return [[Candidate(tokenizer.token(i), i, p) for i, p in zip(*row, strict=True)] for row in rows]


def _place(encoding: Encoding, row: int, candidates: list[Candidate]) -> FilledMask:
    start, end = encoding.offsets[row]
    return FilledMask(start, end, candidates)


@torch.inference_mode()
def next_probabilities(model: BertModel, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
    """P(IsNext) of every pair: [N]."""
    check_pairs(model.config)
    encodings = _encode_whole(model, tokenizer, pairs)

    def run(batch: PackedBatch, _: list[int]) -> list[float]:
        logits = model.nsp_logits(model.encoder(batch, rows=model.summary_rows(batch)))
        probabilities: list[float] = torch.softmax(logits.float(), dim=-1)[:, 0].tolist()
        return probabilities

    return np.array(run_in_batches(encodings, run, model.device), dtype=np.float32)


@torch.inference_mode()
def pseudo_likelihood(model: BertModel, tokenizer: Tokenizer, text: str) -> PseudoLikelihood:
    """Mask each token by itself and read the probability of what stood there."""
    refuse_causal(model)
    encoding = tokenizer.encode(text, max_length=model.config.max_positions, long="error")
    rows = [row for row, text_id in enumerate(encoding.text_ids) if text_id is not None]
    log_probabilities: list[float] = []
    for chunk in chunked(rows, SCORED_AT_ONCE):
        log_probabilities.extend(_masked_log_probabilities(model, tokenizer, encoding, chunk))
    return PseudoLikelihood([encoding.tokens[row] for row in rows], log_probabilities)


def _masked_log_probabilities(
    model: BertModel, tokenizer: Tokenizer, encoding: Encoding, rows: list[int]
) -> list[float]:
    copies = [_with_mask(encoding, row, tokenizer.mask_id) for row in rows]

    def run(batch: PackedBatch, indices: list[int]) -> list[float]:
        masked = batch.cls_rows + torch.tensor([rows[i] for i in indices], device=batch.token_ids.device)
        log_softmax = torch.log_softmax(model.mlm_logits(model.encoder(batch, rows=masked)).float(), dim=-1)
        truth = torch.tensor([encoding.ids[rows[i]] for i in indices], device=log_softmax.device)
        chosen: list[float] = log_softmax.gather(1, truth[:, None])[:, 0].tolist()
        return chosen

    return run_in_batches(copies, run, model.device)


def _encode_whole(
    model: BertModel, tokenizer: Tokenizer, texts: Sequence[str] | Sequence[tuple[str, str]]
) -> list[Encoding]:
    """One encoding a text or pair; one that is too long is an error, since cutting could lose what is asked about."""
    return [first for (first,) in tokenizer.encode_batch(texts, max_length=model.config.max_positions, long="error")]


@dataclass(frozen=True)
class _MaskedCopy:
    ids: list[int]
    segment_ids: list[int]


def _with_mask(encoding: Encoding, row: int, mask_id: int) -> _MaskedCopy:
    return _MaskedCopy([*encoding.ids[:row], mask_id, *encoding.ids[row + 1 :]], encoding.segment_ids)


def _short(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
