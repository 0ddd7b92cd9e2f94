"""What makes sentence vectors good: three losses over the cosines of a batch of pairs.

Dimensions: N pairs, M candidates (the N second texts and then the hard negatives), D hidden.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

SCALE = 20.0  # cosines span 2; the softmax wants more


def contrastive_loss(a_ND: Tensor, candidates_MD: Tensor, known_NM: Tensor, scale: float = SCALE) -> Tensor:
    """Mean over the first texts of -log of the share that their own second text has among all candidates.

    `known` marks candidates that are equal to the own second text or to the first: they are no negatives.
    """
    cosines_NM = F.normalize(a_ND, dim=-1) @ F.normalize(candidates_MD, dim=-1).T
    scores_NM = (scale * cosines_NM).masked_fill(known_NM, -torch.inf)
    return F.cross_entropy(scores_NM, torch.arange(len(a_ND), device=a_ND.device))


def cosent_loss(cosines_N: Tensor, scores_N: Tensor, scale: float = SCALE) -> Tensor:
    """log(1 + the sum of exp(scale (cos_i - cos_j)) over all i that are less alike than j): only the order counts."""
    scaled = scale * cosines_N
    wrong_NN = scaled[:, None] - scaled[None, :]
    is_less_NN = scores_N[:, None] < scores_N[None, :]
    none = torch.zeros(1, device=cosines_N.device, dtype=cosines_N.dtype)
    return torch.logsumexp(torch.cat([none, wrong_NN[is_less_NN]]), dim=0)


def mse_loss(cosines_N: Tensor, scores_N: Tensor) -> Tensor:
    """Mean squared distance of the cosines from the scores, which lie in 0 to 1."""
    return F.mse_loss(cosines_N, scores_N)
