"""The encoder by ONNX Runtime: packed batches in, the same rows out as from PyTorch's, on CPUs.

A batch is cut into groups of sequences of one length, so that nothing is padded and nothing masked, and what else is
in the batch changes no result. Training, other devices and other layers than the last are PyTorch's, on the same
weights. Dimensions: N sequences, S tokens each, T tokens, D hidden, R rows asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertkit.cores import num_cores
from bertkit.errors import BertkitError
from bertkit.inference.batching import Sequenced, chunked
from bertkit.model.attention import Backend
from bertkit.model.encoder import Encoder
from bertkit.model.packed import PackedBatch
from bertkit.model.pooling import Pooling

GROUP_TOKENS = 512  # a run's activations stay in cache
T = TypeVar("T")
R = TypeVar("R")
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
    allowed = num_cores()
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


class Sessions:
    """One graph, opened twice where there are several threads: for a run at a time, and for several runs at once.

    All threads on one run answer a lone text soonest. A thread a run gets more done, since no thread waits for another:
    a fifth more with two threads, and twice as much where the machine has other work (docs/log.md).
    """

    def __init__(self, graph: bytes, threads: int | None = None) -> None:
        self.threads = threads or num_threads()
        self.alone = open_session(graph, self.threads)
        self.beside = self.alone if self.threads == 1 else open_session(graph, 1)
        self._pool = ThreadPoolExecutor(self.threads, "bertkit-engine") if self.threads > 1 else None

    def run_all(self, work: Callable[[T, Any], R], items: Sequence[T]) -> Iterator[R]:
        """work(item, session) of each, in their order; together where there are several."""
        if self._pool is None or len(items) == 1:
            return (work(item, self.alone) for item in items)
        return self._pool.map(lambda item: work(item, self.beside), items)


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

    def __init__(self, encoder: Encoder, sessions: Sessions) -> None:
        nn.Module.__init__(self)
        self.embeddings, self.layers = encoder.embeddings, encoder.layers
        self.is_causal, self.eights = encoder.is_causal, encoder.eights
        self.sessions = sessions
        self.train(encoder.training)

    def forward(self, batch: PackedBatch, *, rows: Tensor | None = None, backend: Backend = "auto") -> Tensor:
        """The last layer's vectors, [T, D], or [R, D] for the rows asked for."""
        if self.training or torch.is_grad_enabled() or backend != "auto" or batch.token_ids.device.type != "cpu":
            return super().forward(batch, rows=rows, backend=backend)
        return torch.from_numpy(self.vectors(batch, None if rows is None else rows.numpy()))

    def vectors(self, batch: PackedBatch, rows: Ints | None = None) -> Floats:
        """The same as an array."""
        starts = batch.cu_seqlens.numpy().astype(np.int64)
        wanted = np.arange(batch.num_tokens) if rows is None else rows
        sequence_of_row = np.searchsorted(starts, wanted, side="right") - 1
        found = np.empty((len(wanted), self.width), np.float32)

        def work(group: Group, session: Any) -> None:
            which = np.flatnonzero(np.isin(sequence_of_row, group.sequences))
            if len(which):
                places = _places(group, wanted[which], sequence_of_row[which], starts)
                ids, segments = (ids.numpy()[group.tokens] for ids in (batch.token_ids, batch.segment_ids))
                found[which] = run_session(session, ids, segments, places)

        for _ in self.sessions.run_all(work, list(equal_lengths(starts))):
            pass
        return found

    def pooled(self, sequences: Sequence[Sequenced], pooling: Pooling, most_tokens: int = GROUP_TOKENS) -> Floats:
        """One vector a sequence, [N, D]; not packed first, which would take a tenth of a short text's time."""
        by_length: dict[int, list[int]] = {}
        for place, sequence in enumerate(sequences):
            by_length.setdefault(len(sequence.ids), []).append(place)
        groups = [
            places
            for length in sorted(by_length, reverse=True)  # long ones last would leave threads without work
            for places in chunked(by_length[length], max(1, most_tokens // max(1, length)))
        ]
        found = np.empty((len(sequences), self.width), np.float32)

        def work(places: list[int], session: Any) -> None:
            found[places] = _pool([sequences[place] for place in places], session, pooling)

        for _ in self.sessions.run_all(work, groups):
            pass
        return found

    @property
    def width(self) -> int:
        """D."""
        return self.embeddings.token.embedding_dim


def run_session(session: Any, ids: Ints, segments: Ints, rows: Ints) -> Floats:
    """One run on sequences of one length, [N, S]: the vectors of these rows of all their tokens."""
    vectors: Floats = session.run(None, {"input_ids": ids, "token_type_ids": segments, "rows": rows})[0]
    return vectors


def _pool(sequences: Sequence[Sequenced], session: Any, pooling: Pooling) -> Floats:
    """One vector a sequence, of sequences of one length."""
    ids = np.array([sequence.ids for sequence in sequences], np.int64)
    segments = np.array([sequence.segment_ids for sequence in sequences], np.int64)
    if pooling == "cls":
        return run_session(session, ids, segments, np.arange(len(ids)) * ids.shape[1])
    hidden = run_session(session, ids, segments, np.arange(ids.size)).reshape(*ids.shape, -1)
    pooled: Floats = hidden.mean(axis=1) if pooling == "mean" else hidden.max(axis=1)
    return pooled


def _places(group: Group, rows: Ints, sequences: Ints, starts: Ints) -> Ints:
    """Where rows of the packed batch stand in the group's own tokens."""
    order = np.argsort(group.sequences)
    within = order[np.searchsorted(group.sequences, sequences, sorter=order)]
    places: Ints = within * group.tokens.shape[1] + rows - starts[sequences]
    return places
