"""Copies of a model's matrices in the types that fast.py's products take: bf16, and rows in eight bits.

In: the float32 masters that an optimizer moves. Out: one layer's weights at a time, never older than the masters.
"""

from typing import NamedTuple, cast

import torch
from torch import Tensor

from bertkit.model.bert import BertModel
from bertkit.model.encoder import Layer
from bertkit.model.kernels.e4m3 import LARGEST
from bertkit.model.kernels.rows8 import Rows8, narrow_rows

LEAST_GAIN = 1e-6  # of weights that begin at zero: a gain of nothing would leave scales that float32 cannot hold
MULTIPLE = 64  # rows that products like; the vocabulary is padded to it, in memory only


class LayerWeights(NamedTuple):
    """A layer's matrices in bf16, and in eight bits as its products take them (`_t`: for input gradients)."""

    qkv: Tensor
    out: Tensor
    up: Tensor
    down: Tensor
    qkv8: Rows8 | None = None
    up8: Rows8 | None = None
    down8: Rows8 | None = None
    qkv8_t: Rows8 | None = None
    out8_t: Rows8 | None = None
    up8_t: Rows8 | None = None
    down8_t: Rows8 | None = None
    down_gain: Tensor | None = None  # how much larger than its input the largest value of an input gradient may be


class NarrowWeights:
    """Copies of a model's matrices in the types that products take; `follow` before each use."""

    def __init__(self, model: BertModel, *, eight: bool = False) -> None:
        layers = cast(list[Layer], list(model.encoder.layers))
        kinds = [[layer.qkv, layer.attention_output, layer.up, layer.down] for layer in layers]
        self._masters: list[list[Tensor]] = [[module.weight for module in kind] for kind in zip(*kinds, strict=True)]
        self._stacks = [_stack(masters) for masters in self._masters]
        token = model.encoder.embeddings.token.weight
        rows = -(-token.shape[0] // MULTIPLE) * MULTIPLE
        self.table = torch.zeros(rows, token.shape[1], dtype=torch.bfloat16, device=token.device)
        self._others: list[tuple[Tensor, Tensor]] = [(self.table[: token.shape[0]], token)]
        if model.mlm is not None:
            self.transform = torch.empty_like(model.mlm.transform.weight, dtype=torch.bfloat16)
            self._others.append((self.transform, model.mlm.transform.weight))
        qkv, out, up, down = self._stacks
        self._sources = (qkv, up, down, qkv.mT, out.mT, up.mT, down.mT) if eight else ()
        self._rows8: list[Rows8] = []
        self._versions: list[int] = []
        self.follow()

    def follow(self) -> None:
        """Copy the masters if anything has written to them since."""
        versions = [m._version for m in self._all_masters]
        if versions != self._versions:
            self._versions = versions
            self.refresh()

    @property
    def _all_masters(self) -> list[Tensor]:
        return [m for kind in self._masters for m in kind] + [m for _, m in self._others]

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the masters as they are now."""
        copies = [copy for stack in self._stacks for copy in stack.unbind(0)] + [copy for copy, _ in self._others]
        torch._foreach_copy_(copies, self._all_masters)
        into: list[Rows8 | None] = list(self._rows8) or [None] * len(self._sources)
        self._rows8 = [narrow_rows(source, room) for source, room in zip(self._sources, into, strict=True)]
        if self._rows8:  # rows' largest values are about four deviations, and a margin of four beyond that
            scales = self._rows8[2].scales.view(len(self._masters[3]), -1)
            self._gains = (scales.mean(1) * (1.5 * LARGEST * scales.shape[1] ** 0.5)).clamp(min=LEAST_GAIN)

    def layer(self, index: int) -> LayerWeights:
        """The weights of one layer."""
        qkv, out, up, down = (stack[index] for stack in self._stacks)
        if not self._rows8:
            return LayerWeights(qkv, out, up, down)
        qkv8, up8, down8, *transposed = (_part(rows, index, len(self._masters[0])) for rows in self._rows8)
        qkv8_t, out8_t, up8_t, down8_t = transposed
        narrow = (qkv8, up8, down8, qkv8_t, out8_t, up8_t, down8_t, self._gains[index])
        return LayerWeights(qkv, out, up, down, *narrow)


def _stack(masters: list[Tensor]) -> Tensor:
    return torch.stack([master.detach().to(torch.bfloat16) for master in masters])


def _part(rows: Rows8, index: int, num_parts: int) -> Rows8:
    size = rows.values.shape[0] // num_parts
    return Rows8(*(tensor[index * size : (index + 1) * size] for tensor in rows))
