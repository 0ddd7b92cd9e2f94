"""How likely texts are by a masked model (Salazar et al., 2020), for many short texts at once.

Texts of one length stand in one matrix; masked copies are made on the device, so that a batch is a rectangle without
padding and Python does nothing for a single copy. Only the masked rows go through the MLM head, in float32: a sum of
logarithms must not depend on eight bits. Dimensions: S texts of N tokens, C masked copies, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.errors import BertkitError, LongTextError
from bertkit.inference.batching import chunked
from bertkit.inference.bert import Bert
from bertkit.inference.prediction import refuse_causal
from bertkit.model.bert import MaskedTokenHead
from bertkit.model.budgets import LIKELIHOODS
from bertkit.model.packed import PackedBatch

TEXTS_AT_ONCE = 16384


class TextScorer:
    """A checkpoint that says how likely texts are."""

    def __init__(self, bert: Bert, max_tokens: int | None = None) -> None:
        model = bert.model
        if model.mlm is None:
            raise BertkitError(
                "this checkpoint has no MLM head, so it cannot say how likely a text is; load one that has"
            )
        refuse_causal(model)
        self.model, self.tokenizer = model, bert.tokenizer
        self.max_tokens = max_tokens or LIKELIHOODS.on(model.device)
        self.head: MaskedTokenHead = deepcopy(model.mlm).float()
        self.embeddings_VD = model.encoder.embeddings.token.weight.detach().float()

    def score(self, texts: Iterable[str]) -> NDArray[np.float64]:
        """The sum of log P of each token given all others, for every text, in their order."""
        parts = [self._score_chunk(chunk) for chunk in chunked(texts, TEXTS_AT_ONCE)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _score_chunk(self, texts: Sequence[str]) -> NDArray[np.float64]:
        frame, limit = (self.tokenizer.cls_id, self.tokenizer.sep_id), self.model.config.max_positions
        ids = [[frame[0], *found, frame[1]] for found in self.tokenizer.encode_ids(texts)]
        if long := max((text for text, found in zip(texts, ids, strict=True) if len(found) > limit), default=""):
            raise LongTextError(f"{long!r:.60} has more tokens than the model's {limit} positions; leave it out")
        by_length: dict[int, list[int]] = {}
        for index, one in enumerate(ids):
            by_length.setdefault(len(one), []).append(index)
        totals = np.zeros(len(texts))
        for length, indices in sorted(by_length.items(), reverse=True):  # what does not fit in memory fails early
            if length > 2:  # a text without tokens has no probability to add up
                totals[indices] = self._score_equal([ids[index] for index in indices])
        return totals

    @torch.inference_mode()
    def _score_equal(self, ids: list[list[int]]) -> NDArray[np.float64]:
        """Texts of one length."""
        ids_SN = torch.tensor(ids, device=self.model.device)
        num_texts, length = ids_SN.shape
        places = length - 2  # [CLS] and [SEP] are given
        totals = torch.zeros(num_texts, dtype=torch.float64, device=ids_SN.device)
        copies = torch.arange(num_texts * places, device=ids_SN.device)
        for part in copies.split(max(1, self.max_tokens // length)):
            text, place = part // places, part % places + 1
            totals.index_add_(0, text, self._log_probabilities(ids_SN, text, place).double())
        found: NDArray[np.float64] = totals.cpu().numpy()
        return found

    def _log_probabilities(self, ids_SN: Tensor, text_C: Tensor, place_C: Tensor) -> Tensor:
        """log P of the token that stands at this place of this text, where [MASK] is read: [C]."""
        number = torch.arange(len(text_C), device=ids_SN.device)
        tokens_CN = ids_SN[text_C]
        truth_C = tokens_CN[number, place_C]
        tokens_CN[number, place_C] = self.tokenizer.mask_id
        rows = number * ids_SN.shape[1] + place_C
        hidden_CD = self.model.encoder(rectangle(tokens_CN), rows=rows).float()
        logits_CV = self.head(hidden_CD, self.embeddings_VD)
        chosen: Tensor = logits_CV.gather(1, truth_C[:, None])[:, 0] - logits_CV.logsumexp(-1)
        return chosen


def rectangle(tokens_CN: Tensor) -> PackedBatch:
    """Sequences of one length as a packed batch, all of segment 0."""
    num, length = tokens_CN.shape
    positions = torch.arange(length, device=tokens_CN.device).repeat(num)
    bounds = torch.arange(0, num * length + 1, length, dtype=torch.int32, device=tokens_CN.device)
    return PackedBatch(tokens_CN.flatten(), torch.zeros_like(positions), positions, bounds, length)
