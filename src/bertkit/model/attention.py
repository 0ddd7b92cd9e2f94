"""Attention over packed sequences (section 3.1 of "Attention is all you need"), by three backends chosen here.

varlen  flash attention on the packed layout itself: CUDA with half precision
sdpa    PyTorch's scaled_dot_product_attention: every device and dtype; padding inside, but not in training on a CPU
plain   written out, and keeps its weights for people who want to look

Dimensions: T tokens, N sequences, S longest sequence, H heads, E width of a head.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.model.packed import PackedBatch

Backend = Literal["auto", "varlen", "sdpa", "plain"]
BACKENDS: tuple[Backend, ...] = ("auto", "varlen", "sdpa", "plain")
FLASH_CAPABILITY = (8, 0)  # Ampere: the first GPUs with flash attention and bf16


class Attention(Protocol):
    """Prepared once for a batch, called once a layer."""

    def __call__(self, qkv_T3HE: Tensor, dropout: float) -> Tensor:
        """Mix values by softmax(query . key / sqrt(E)) within each sequence: [T, 3, H, E] -> [T, H, E]."""


def prepare(batch: PackedBatch, dtype: torch.dtype, backend: Backend = "auto", *, is_causal: bool = False) -> Attention:
    """The attention of this batch by the named backend, or by the fastest that its device and dtype allow.

    Causal: a token sees itself and those before it in its sequence.
    """
    if backend not in BACKENDS:
        raise BertkitError(f"unknown attention backend {backend!r}; choose one of {', '.join(BACKENDS)}")
    device = batch.token_ids.device
    if backend == "auto":
        backend = "varlen" if supports_varlen(device, dtype) else "sdpa"
    if backend == "varlen":
        if not supports_varlen(device, dtype):
            raise BertkitError(
                f"attention 'varlen' needs CUDA and half precision, not {device.type} {dtype}; use 'sdpa'"
            )
        return VarlenAttention(batch, is_causal=is_causal)
    if backend == "plain":
        return PlainAttention(batch, is_causal=is_causal)
    in_runs = device.type == "cpu" and torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return RunsAttention(batch, is_causal=is_causal) if in_runs else SdpaAttention(batch, is_causal=is_causal)


def supports_varlen(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether flash attention runs there."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= FLASH_CAPABILITY


def widened(qkv_T3HE: Tensor) -> Tensor:
    """In float32 at least on a CPU, where PyTorch's attention in 16 bits takes four times as long."""
    is_narrow = qkv_T3HE.device.type == "cpu" and qkv_T3HE.dtype != torch.float64
    return qkv_T3HE.float() if is_narrow else qkv_T3HE


class VarlenAttention:
    """Flash attention that reads the packed layout as it is."""

    def __init__(self, batch: PackedBatch, *, is_causal: bool = False) -> None:
        self.is_causal = is_causal
        self.cu_seqlens = batch.cu_seqlens
        self.max_seqlen = batch.max_seqlen

    def __call__(self, qkv_T3HE: Tensor, dropout: float) -> Tensor:
        query, key, value = qkv_T3HE.unbind(1)
        # torch.nn.attention.varlen has no dropout; this is the op underneath it, differentiable and traceable too.
        output: Tensor = torch.ops.aten._flash_attention_forward(
            query,
            key,
            value,
            self.cu_seqlens,
            self.cu_seqlens,
            self.max_seqlen,
            self.max_seqlen,
            dropout,
            self.is_causal,
            False,
        )[0]
        return output


@dataclass(frozen=True)
class Run:
    """Sequences of one length, side by side: a rectangle without padding."""

    start: int
    stop: int
    length: int

    @classmethod
    def of(cls, cu_seqlens: Tensor) -> "list[Run]":
        """Those of a batch; sequences without tokens are in none."""
        bounds: list[int] = cu_seqlens.tolist()
        runs: list[Run] = []
        for start, stop in pairwise(bounds):
            if runs and stop > start and stop - start == runs[-1].length:
                runs[-1] = cls(runs[-1].start, stop, stop - start)
            elif stop > start:
                runs.append(cls(start, stop, stop - start))
        return runs

    def cut(self, packed: Tensor) -> Tensor:
        """This part of a packed tensor, with rows of their own for sequences: [T, ...] -> [N, S, ...]."""
        part: Tensor = packed[self.start : self.stop].unflatten(0, (-1, self.length))
        return part


class RunsAttention:
    """scaled_dot_product_attention on a CPU, run by run, on the packed layout itself.

    In training, where lengths differ, copies into padding and back and the products of what is not there cost more than
    the attention of real tokens. Texts to predict come sorted by length and gain nothing.
    """

    def __init__(self, batch: PackedBatch, *, is_causal: bool = False) -> None:
        self.runs, self.is_causal = Run.of(batch.cu_seqlens), is_causal

    def __call__(self, qkv_T3HE: Tensor, dropout: float) -> Tensor:
        wide = widened(qkv_T3HE)
        mixed: Tensor = MixRuns.apply(wide, self.runs, dropout, self.is_causal)  # type: ignore[no-untyped-call]
        return mixed.to(qkv_T3HE.dtype)


class MixRuns(torch.autograd.Function):
    """Each run by PyTorch's own forward and backward; results and gradients are written where they belong.

    Differentiated as slices, every run would make a gradient as large as the whole batch.
    """

    @staticmethod
    def forward(context: Any, qkv_T3HE: Tensor, runs: list[Run], dropout: float, is_causal: bool) -> Tensor:
        """[T, 3, H, E] -> [T, H, E]."""
        out = torch.empty_like(qkv_T3HE[:, 0])
        context.parts = []
        for run in runs:
            parts = run.cut(qkv_T3HE).permute(2, 0, 3, 1, 4)  # of N sequences, [3, N, H, S, E]
            query, key, value = (part.detach().requires_grad_() for part in parts)
            with torch.enable_grad():
                mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=is_causal)
            run.cut(out).copy_(mixed.detach().transpose(1, 2))
            context.parts.append((run, (query, key, value), mixed))
        return out

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Of queries, keys and values."""
        (grad_THE,) = grads
        grad = grad_THE.new_empty(grad_THE.shape[0], 3, *grad_THE.shape[1:])
        for run, leaves, mixed in context.parts:
            found = torch.autograd.grad(mixed, leaves, run.cut(grad_THE).transpose(1, 2))
            for place, one in zip(run.cut(grad).unbind(2), found, strict=True):
                place.copy_(one.transpose(1, 2))
        return grad, None, None, None


class SdpaAttention:
    """scaled_dot_product_attention on a padded copy; sequences of one length need no copy and no mask."""

    def __init__(self, batch: PackedBatch, *, is_causal: bool = False) -> None:
        self.padding, self.is_causal = Padding(batch), is_causal
        # Padding stands after all real tokens, so a causal mask hides it too.
        needs_mask = not (self.padding.is_rectangle or is_causal)
        self.mask = self.padding.key_mask[:, None, None, :] if needs_mask else None  # [N, 1, 1, S]

    def __call__(self, qkv_T3HE: Tensor, dropout: float) -> Tensor:
        query, key, value = self.padding.pad(widened(qkv_T3HE))
        mixed = F.scaled_dot_product_attention(
            query, key, value, attn_mask=self.mask, dropout_p=dropout, is_causal=self.is_causal
        )
        return self.padding.unpad(mixed).to(qkv_T3HE.dtype)


class PlainAttention:
    """The formula written out. `weights` holds one [N, H, S, S] tensor a layer, zero at padding."""

    def __init__(self, batch: PackedBatch, *, is_causal: bool = False) -> None:
        self.padding = Padding(batch)
        self.is_seen = self.padding.key_mask[:, None, None, :]  # [N, 1, 1, S], or if causal [N, 1, S, S]
        if is_causal:
            places = torch.arange(batch.max_seqlen, device=self.is_seen.device)
            self.is_seen = self.is_seen & (places <= places[:, None])
        self.weights: list[Tensor] = []

    def __call__(self, qkv_T3HE: Tensor, dropout: float) -> Tensor:
        query, key, value = self.padding.pad(qkv_T3HE)
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5  # [N, H, S, S]
        scores = scores.masked_fill(~self.is_seen, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
        self.weights.append(weights.detach())
        return self.padding.unpad(F.dropout(weights, dropout) @ value)


class Padding:
    """Between the packed layout [T, ...] and the padded one [N, H, S, E]."""

    def __init__(self, batch: PackedBatch) -> None:
        self.num_sequences, self.max_seqlen = len(batch), batch.max_seqlen
        self.is_rectangle = batch.num_tokens == self.num_sequences * self.max_seqlen
        columns = torch.arange(self.max_seqlen, device=batch.cu_seqlens.device)
        self.key_mask = columns < batch.cu_seqlens.diff()[:, None]  # [N, S]
        if not self.is_rectangle:
            rows = batch.cls_rows[:, None] + columns  # [N, S]: the packed row of each padded place
            self.packed_rows = rows.clamp(max=batch.num_tokens - 1).flatten()
            sequence = batch.sequence_of_token
            tokens = torch.arange(batch.num_tokens, device=batch.cu_seqlens.device)
            self.padded_rows = sequence * self.max_seqlen + tokens - batch.cls_rows[sequence]  # [T]

    def pad(self, qkv_T3HE: Tensor) -> tuple[Tensor, ...]:
        """Query, key and value as [N, H, S, E]; what stands in the padding is another sequence's and is masked."""
        if not self.is_rectangle:
            qkv_T3HE = qkv_T3HE.index_select(0, self.packed_rows)
        padded: Tensor = qkv_T3HE.unflatten(0, (self.num_sequences, self.max_seqlen))  # [N, S, 3, H, E]
        return padded.permute(2, 0, 3, 1, 4).unbind(0)

    def unpad(self, mixed_NHSE: Tensor) -> Tensor:
        """Back to [T, H, E]."""
        mixed = mixed_NHSE.transpose(1, 2).flatten(0, 1)  # [N * S, H, E]
        return mixed if self.is_rectangle else mixed.index_select(0, self.padded_rows)
