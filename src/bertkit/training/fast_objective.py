"""Pre-training's objective by the fast path of model/fast.py, where it can be taken; its plain twin is objective.py.

The choice is made here alone. Evaluation takes bf16 products also where training takes eight bits, so that figures of
held-out text are of the model as its users will run it.
"""

import importlib.util

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig
from bertkit.tasks.pretraining import IGNORED, PretrainingBatch
from bertkit.training.objective import Objective, make_objective
from bertkit.training.stepping import LoopOptions

HEAD_SIZES = (16, 32, 64, 128)
EIGHT_BITS_FROM = (9, 0)  # Hopper: rows with scales of their own


def why_not_fast(model: BertModel) -> str | None:
    """What stands against the fast path; None where it can be taken."""
    device = model.device
    if device.type != "cuda" or torch.version.hip is not None or torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs an NVIDIA GPU of compute capability 8.0 or newer"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    return _why_not_model(model.config)


def _why_not_model(config: BertConfig) -> str | None:
    if config.is_causal or config.hidden_dropout or config.attention_dropout:
        return "the model is causal" if config.is_causal else "dropout is on"
    if config.activation != "gelu" or not config.tied_decoder or not {"mlm", "nsp"} <= set(config.heads):
        return "it is made for GELU, a tied decoder, and the MLM and NSP heads"
    if config.head_size not in HEAD_SIZES:
        return f"heads are {config.head_size} wide, not one of {HEAD_SIZES}"
    if config.intermediate_size % 16:  # eight bits are read sixteen at a time
        return f"feed-forward layers are {config.intermediate_size} wide, not a multiple of 16"
    return None


def choose_objective(model: BertModel, options: LoopOptions) -> nn.Module:
    """The model's loss as these options want it: by our kernels where they run and are not forbidden."""
    plain, is_bf16 = make_objective(Objective(model), options.dtype), options.dtype == torch.bfloat16
    if options.kernels == "plain" or (options.kernels == "auto" and not is_bf16):
        if options.eight_bits:
            raise BertkitError("eight_bits needs the fast kernels: set kernels = 'auto', or eight_bits = false")
        return plain
    reason = why_not_fast(model) if is_bf16 else "the precision is not bfloat16"
    if options.eight_bits and reason is None and torch.cuda.get_device_capability(model.device) < EIGHT_BITS_FROM:
        reason = "this GPU does not multiply in eight bits"
    if reason is None:
        return FastObjective(model, eight=options.eight_bits)
    if options.kernels == "fast" or options.eight_bits:
        raise BertkitError(f"the fast kernels cannot be taken: {reason}; set kernels = 'auto' and eight_bits = false")
    return plain


class FastObjective(nn.Module):
    """As Objective in bf16, by our kernels; with `eight`, training products take rows in eight bits."""

    def __init__(self, model: BertModel, *, eight: bool = False) -> None:
        super().__init__()
        from bertkit.model.narrow_weights import NarrowWeights

        self.model, self.eight = model, eight
        self.narrow = NarrowWeights(model, eight=eight)

    def forward(self, batch: PretrainingBatch, counts_2: Tensor) -> tuple[Tensor, Tensor]:
        """The loss's share, and sums [4] for the journal."""
        from bertkit.model.fast import fast_encode, fast_masked_loss

        self.narrow.follow()
        rows = torch.cat([batch.masked_positions, batch.inputs.cls_rows])
        eight = self.eight and self.training
        hidden = fast_encode(self.model, self.narrow, batch.inputs, rows, eight=eight)
        masked_MD, cls_ND = hidden.tensor_split([batch.masked_positions.shape[0]])
        shares = 1.0 / counts_2
        mlm, mlm_sum, mlm_right = fast_masked_loss(
            self.model, self.narrow, masked_MD, batch.masked_token_ids, shares[0]
        )
        logits = self.model.nsp_logits(cls_ND.float())
        nsp_sum = F.cross_entropy(logits, batch.next_labels, ignore_index=IGNORED, reduction="sum")
        nsp_right = (logits.detach().argmax(-1) == batch.next_labels).sum().float()
        sums = torch.stack([mlm_sum.detach(), nsp_sum.detach(), mlm_right, nsp_right])
        return mlm + nsp_sum * shares[1], sums
