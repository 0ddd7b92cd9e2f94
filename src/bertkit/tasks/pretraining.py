"""Pre-training (section 3.1 of the paper): the MLM loss of the masked positions plus the NSP loss of the pairs.

In: a packed batch and its targets (of a left-to-right model, every next token). Out: both losses as sums with their counts, so that a large batch cut into
small ones has the same gradient. Dimensions: M masked positions, N sequences.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.model.attention import Backend
from bertkit.model.bert import BertModel
from bertkit.model.packed import PackedBatch, move_tensors

IGNORED = -100  # a target that counts nowhere: an unused slot of a batch of fixed capacity
IS_NEXT, NOT_NEXT = 0, 1


@dataclass(frozen=True)
class PretrainingBatch:
    """Packed sequences with what is to be predicted for them."""

    inputs: PackedBatch
    masked_positions: Tensor  # [M] rows of the packed batch
    masked_token_ids: Tensor  # [M] what stood there, or IGNORED
    next_labels: Tensor  # [N] IS_NEXT, NOT_NEXT or IGNORED

    def to(self, device: torch.device | str) -> "PretrainingBatch":
        """The same batch on another device."""
        return move_tensors(self, device)


@dataclass(frozen=True)
class PretrainingLosses:
    """Both losses, summed over a batch, with the logits they came from."""

    mlm_sum: Tensor
    nsp_sum: Tensor
    mlm_logits: Tensor  # [M, V]; empty without an MLM head
    nsp_logits: Tensor  # [N, 2]; empty without an NSP head

    def total(self, num_masked: int, num_pairs: int) -> Tensor:
        """The mean MLM loss plus the mean NSP loss, given the counts of the whole step."""
        return self.mlm_sum / max(1, num_masked) + self.nsp_sum / max(1, num_pairs)


def pretraining_losses(model: BertModel, batch: PretrainingBatch, backend: Backend = "auto") -> PretrainingLosses:
    """Run the encoder once; the heads see the predicting and the [CLS] rows alone. A head that is not there loses 0."""
    rows = torch.cat([batch.masked_positions, model.summary_rows(batch.inputs)])
    hidden = model.encoder(batch.inputs, rows=rows, backend=backend)
    masked_MD, cls_ND = hidden.tensor_split([batch.masked_positions.shape[0]])
    mlm_logits = hidden.new_zeros(0) if model.mlm is None else model.mlm_logits(masked_MD)
    nsp_logits = hidden.new_zeros(0) if model.nsp is None else model.nsp_logits(cls_ND)
    return PretrainingLosses(
        mlm_sum=_summed_cross_entropy(mlm_logits, batch.masked_token_ids),
        nsp_sum=_summed_cross_entropy(nsp_logits, batch.next_labels),
        mlm_logits=mlm_logits,
        nsp_logits=nsp_logits,
    )


def _summed_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    if not logits.numel():
        return logits.sum()
    return F.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")
