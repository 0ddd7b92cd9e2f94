"""The encoder by ONNX Runtime: packed batches in, the same rows out as from PyTorch's, on CPUs.

A batch is cut into groups of sequences of one length, so that nothing is padded and nothing masked, and what else is
in the batch changes no result. Training, other devices and other layers than the last are PyTorch's, on the same
weights. Dimensions: N sequences, S tokens each, T tokens, D hidden, R rows asked for.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertkit.errors import BertkitError
from bertkit.model.attention import Backend
from bertkit.model.encoder import Encoder
from bertkit.model.packed import PackedBatch
from bertkit.model.pooling import Pooling

GROUP_TOKENS = 1024  # a run's activations stay in cache
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def load_runtime() -> Any:
    """The onnxruntime package, or one line that says how to get it."""
    try:
        import onnxruntime
    except ImportError:
        raise BertkitError("this engine needs ONNX Runtime: pip install 'bertkit[onnx]', or use engine torch") from None
    return onnxruntime


def num_threads() -> int:
    """As many as PyTorch would use (OMP_NUM_THREADS, torch.set_num_threads), but no more than this process may."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(torch.get_num_threads(), allowed))


def open_session(graph: bytes | str, threads: int | None = None) -> Any:
    """A session with settings for batches of any shape: one pool of threads, no plans kept for every shape."""
    runtime = load_runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or num_threads()
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    return runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class Group:
    """Sequences of one length within a batch."""

    sequences: Ints  # [N] which ones
    tokens: Ints  # [N, S] their rows in the packed batch


def equal_lengths(cu_seqlens: Ints, most_tokens: int = GROUP_TOKENS) -> Iterator[Group]:
    """Every sequence in one group of its length; a group holds at most so many tokens, and at least one sequence."""
    lengths = np.diff(cu_seqlens)
    order = np.argsort(lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order])) + 1
    for same in np.split(order, ends):
        if not len(same):
            continue
        length = int(lengths[same[0]])
        size = max(1, most_tokens // max(1, length))
        for start in range(0, len(same), size):
            part = same[start : start + size]
            yield Group(part, cu_seqlens[:-1][part][:, None] + np.arange(length))


class SessionEncoder(Encoder):
    """An encoder whose last layer comes from a session; its modules are those of the encoder that it stands for."""

    def __init__(self, encoder: Encoder, session: Any) -> None:
        nn.Module.__init__(self)
        self.embeddings, self.layers = encoder.embeddings, encoder.layers
        self.session = session
        self.train(encoder.training)

    def forward(self, batch: PackedBatch, *, rows: Tensor | None = None, backend: Backend = "auto") -> Tensor:
        """The last layer's vectors, [T, D], or [R, D] for the rows asked for."""
        if self.training or torch.is_grad_enabled() or backend != "auto" or batch.token_ids.device.type != "cpu":
            return super().forward(batch, rows=rows, backend=backend)
        return torch.from_numpy(self.vectors(batch, None if rows is None else rows.numpy()))

    def vectors(self, batch: PackedBatch, rows: Ints | None = None) -> Floats:
        """The same as an array."""
        sequence_of_row = None
        starts = batch.cu_seqlens.numpy().astype(np.int64)
        if rows is not None:
            sequence_of_row = np.searchsorted(starts, rows, side="right") - 1
        found = np.empty((batch.num_tokens if rows is None else len(rows), self.width), np.float32)
        for group in equal_lengths(starts):
            if rows is None or sequence_of_row is None:
                found[group.tokens.ravel()] = self.run(batch, group)
                continue
            wanted = np.flatnonzero(np.isin(sequence_of_row, group.sequences))
            if len(wanted):
                found[wanted] = self.run(batch, group, _places(group, rows[wanted], sequence_of_row[wanted], starts))
        return found

    def pooled(self, batch: PackedBatch, pooling: Pooling) -> Floats:
        """One vector a sequence, [N, D]."""
        found = np.empty((len(batch), self.width), np.float32)
        for group in equal_lengths(batch.cu_seqlens.numpy().astype(np.int64)):
            num, length = group.tokens.shape
            if pooling == "cls":
                found[group.sequences] = self.run(batch, group, np.arange(num) * length)
                continue
            hidden = self.run(batch, group).reshape(num, length, -1)
            found[group.sequences] = hidden.mean(axis=1) if pooling == "mean" else hidden.max(axis=1)
        return found

    @property
    def width(self) -> int:
        """D."""
        return self.embeddings.token.embedding_dim

    def run(self, batch: PackedBatch, group: Group, rows: Ints | None = None) -> Floats:
        """One run of the session on sequences of one length: all their tokens' vectors, or these rows'."""
        inputs = {
            "input_ids": batch.token_ids.numpy()[group.tokens],
            "token_type_ids": batch.segment_ids.numpy()[group.tokens],
            "rows": np.arange(group.tokens.size) if rows is None else rows,
        }
        vectors: Floats = self.session.run(None, inputs)[0]
        return vectors


def _places(group: Group, rows: Ints, sequences: Ints, starts: Ints) -> Ints:
    """Where rows of the packed batch stand in the group's own tokens."""
    order = np.argsort(group.sequences)
    within = order[np.searchsorted(group.sequences, sequences, sorter=order)]
    places: Ints = within * group.tokens.shape[1] + rows - starts[sequences]
    return places
