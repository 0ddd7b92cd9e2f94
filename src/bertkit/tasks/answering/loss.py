"""The loss of start and end (section 4.2 of the paper) on packed sequences: a softmax over each sequence's own tokens.

In: scores [R, 2] of rows, and for each row whether the answer starts there, ends there, or both. Reductions are over
segments of fixed number and in float32, so it compiles with fixed shapes and does not depend on padding.
"""

import torch
from torch import Tensor

from bertkit.tasks.task import IGNORED

STARTS, ENDS = 1, 2  # bits of a row's target: 0 is neither, 3 both


def segment_log_softmax(scores_RC: Tensor, segment_R: Tensor, num_segments: int) -> Tensor:
    """log softmax down each column, among the rows of one segment: [R, C]."""
    columns = scores_RC.shape[1]
    index = segment_R[:, None].expand(-1, columns)
    lowest = scores_RC.new_full((num_segments, columns), torch.finfo(scores_RC.dtype).min)
    highest = lowest.scatter_reduce(0, index, scores_RC.detach(), "amax").index_select(0, segment_R)
    shifted = scores_RC - highest
    sums = scores_RC.new_zeros(num_segments, columns).index_add(0, segment_R, shifted.exp())
    return shifted - sums.index_select(0, segment_R).log()


def span_loss_sum(scores_R2: Tensor, targets_R: Tensor, segment_R: Tensor, num_segments: int) -> Tensor:
    """Summed over sequences: the mean of the start's and the end's cross-entropy. IGNORED rows are not there."""
    scores = scores_R2.float()
    counts = (targets_R != IGNORED)[:, None]
    scores = torch.where(counts, scores, torch.finfo(scores.dtype).min)
    log_probabilities = segment_log_softmax(scores, segment_R, num_segments)
    bits = torch.stack([targets_R & STARTS, targets_R & ENDS], dim=1)
    chosen = counts & (bits != 0)
    return -torch.where(chosen, log_probabilities, 0.0).sum() / 2
