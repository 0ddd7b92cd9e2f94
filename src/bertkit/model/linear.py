"""The products of the model's linear layers, [rows, inputs] -> [rows, outputs], by PyTorch.

In bfloat16 on a CPU, oneDNN keeps a prepared product, with room for the weights in its own layout, for every number of
rows that it meets, up to a thousand: gigabytes. There rows are filled up with zeros, so that few numbers come up.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEW, MANY = 16, 64  # numbers of rows are multiples of these, below and from 64 on


def product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows weight^T + bias."""
    num = rows.shape[0]
    spare = -num % (FEW if num < MANY else MANY)
    if rows.dtype != torch.bfloat16 or rows.device.type != "cpu" or not spare:
        return F.linear(rows, weight, bias)
    return F.linear(F.pad(rows, (0, 0, 0, spare)), weight, bias)[:num]


class Linear(nn.Linear):
    """nn.Linear on rows, by `product`."""

    def forward(self, rows: Tensor) -> Tensor:
        """[rows, inputs] -> [rows, outputs]."""
        return product(rows, self.weight, self.bias)
