"""The encoder by ONNX Runtime: packed batches in, the same rows out as from PyTorch's, on CPUs.

A batch is cut into runs (runs.py); in a run, sequences of one length attend together, so that nothing is padded and
nothing masked, and what else is in the batch changes no result. Training, other devices, other layers than the last and
weights that have changed since are PyTorch's. Dimensions: N sequences, S tokens each, T tokens, D hidden, R rows asked for.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.cores import num_cores
from bertkit.errors import BertkitError
from bertkit.inference.batching import Sequenced
from bertkit.inference.engines.runs import NUM_BOXES, RUN_TOKENS, Floats, Ints, Run, plan_runs
from bertkit.model.attention import Backend
from bertkit.model.encoder import Encoder
from bertkit.model.packed import PackedBatch
from bertkit.model.pooling import Pooling

T = TypeVar("T")
AHEAD = 2  # runs handed over for each thread: so who asks for little meanwhile waits for few of many


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
    """Two graphs of one encoder: for a lone sequence on all threads, and for runs of many, a thread each.

    All threads on one run answer a lone text soonest. A thread a run gets more done, since no thread waits for another:
    a fifth more with two threads, and twice as much where the machine has other work (docs/log.md).
    """

    def __init__(self, build: Callable[[int | None], bytes], threads: int | None = None) -> None:
        """`build` gives the graph of one box, or with a number the graph of so many (`build_engine`)."""
        self.threads = threads or num_threads()
        self.alone = open_session(build(None), self.threads)
        self.packed = open_session(build(NUM_BOXES), 1)
        self._pool = ThreadPoolExecutor(self.threads, "bertkit-engine") if self.threads > 1 else None

    def run_all(self, work: Callable[[T], None], items: Sequence[T]) -> None:
        """work(item) of each, as many at once as there are threads."""
        if self._pool is None:
            for item in items:
                work(item)
            return
        under_way: deque[Future[None]] = deque()
        for item in items:
            if len(under_way) == AHEAD * self.threads:
                under_way.popleft().result()
            under_way.append(self._pool.submit(work, item))
        for one in under_way:
            one.result()


class SessionEncoder(Encoder):
    """An encoder whose last layer comes from a session; its modules are those of the encoder that it stands for."""

    def __init__(self, encoder: Encoder, sessions: Sessions) -> None:
        nn.Module.__init__(self)
        self.embeddings, self.layers = encoder.embeddings, encoder.layers
        self.is_causal, self.eights = encoder.is_causal, encoder.eights
        self.sessions = sessions
        self.plain = (encoder,)  # in a tuple: as a module of this one, it would hold all weights by a second name
        self._watched = tuple(parameter for parameter in encoder.parameters() if not parameter.is_inference())
        self._built_of = self._state()
        self.train(encoder.training)

    @property
    def is_current(self) -> bool:
        """Whether the weights are still those that the sessions hold copies of: training may have changed them."""
        return self._state() == self._built_of

    def _state(self) -> list[int]:
        # PyTorch counts what is written into a tensor; where the first one lies tells of another dtype or device.
        return [self.embeddings.token.weight.data_ptr(), *(parameter._version for parameter in self._watched)]

    def forward(self, batch: PackedBatch, *, rows: Tensor | None = None, backend: Backend = "auto") -> Tensor:
        """The last layer's vectors, [T, D], or [R, D] for the rows asked for."""
        is_elsewhere = backend != "auto" or batch.token_ids.device.type != "cpu"
        if self.training or torch.is_grad_enabled() or is_elsewhere or not self.is_current:
            return super().forward(batch, rows=rows, backend=backend)
        return torch.from_numpy(self.vectors(batch, None if rows is None else rows.numpy()))

    def vectors(self, batch: PackedBatch, rows: Ints | None = None) -> Floats:
        """The same as an array."""
        starts = batch.cu_seqlens.numpy().astype(np.int64)
        ids, segments = batch.token_ids.numpy(), batch.segment_ids.numpy()
        wanted = np.arange(batch.num_tokens) if rows is None else rows
        if len(starts) == 2:
            return run_alone(self.sessions.alone, ids[None], segments[None], wanted)
        found = np.empty((len(wanted), self.width), np.float32)
        run_of_token, place_of_token = np.empty_like(ids), np.empty_like(ids)
        runs = plan_runs(np.diff(starts), self.sessions.threads)
        for number, run in enumerate(runs):
            tokens = run.tokens(starts)
            run_of_token[tokens], place_of_token[tokens] = number, np.arange(len(tokens))

        def work(number: int) -> None:
            which = np.flatnonzero(run_of_token[wanted] == number)
            if len(which):
                run = runs[number]
                tokens, places = run.tokens(starts), place_of_token[wanted[which]]
                found[which] = self._run(run, ids[tokens], segments[tokens], places)

        self.sessions.run_all(work, range(len(runs)))
        return found

    def pooled(self, sequences: Sequence[Sequenced], pooling: Pooling, most_tokens: int = RUN_TOKENS) -> Floats:
        """One vector a sequence, [N, D]; not packed first, which would take a tenth of a short text's time."""
        if len(sequences) == 1:
            return self._pool_one(sequences[0], pooling)
        found = np.empty((len(sequences), self.width), np.float32)
        lengths = np.array([len(sequence.ids) for sequence in sequences], np.int64)

        def work(run: Run) -> None:
            chosen = [sequences[place] for place in run.sequences]
            ids, segments = (
                np.fromiter(chain.from_iterable(parts), np.int64, run.num_tokens)
                for parts in ([one.ids for one in chosen], [one.segment_ids for one in chosen])
            )
            rows = run.starts if pooling == "cls" else np.arange(run.num_tokens)
            vectors = self._run(run, ids, segments, rows)
            found[run.sequences] = vectors if pooling == "cls" else run.pool(vectors, pooling)

        self.sessions.run_all(work, plan_runs(lengths, self.sessions.threads, most_tokens))
        return found

    def _pool_one(self, sequence: Sequenced, pooling: Pooling) -> Floats:
        ids, segments = np.array([sequence.ids], np.int64), np.array([sequence.segment_ids], np.int64)
        rows = np.zeros(1, np.int64) if pooling == "cls" else np.arange(ids.size)
        hidden = run_alone(self.sessions.alone, ids, segments, rows)
        pooled: Floats = hidden.max(axis=0) if pooling == "max" else hidden.mean(axis=0)
        return pooled[None]

    def _run(self, run: Run, ids: Ints, segments: Ints, rows: Ints) -> Floats:
        """The vectors of these rows of a run's tokens."""
        boxes = run.boxes(self.width)
        inputs = {"input_ids": ids, "token_type_ids": segments, "positions": run.positions, "rows": rows}
        vectors: Floats = self.sessions.packed.run(
            None, {**inputs, "boxes": boxes, "sizes": boxes[:, 0] * boxes[:, 1]}
        )[0]
        return vectors

    @property
    def width(self) -> int:
        """D."""
        return self.embeddings.token.embedding_dim


def run_alone(session: Any, ids: Ints, segments: Ints, rows: Ints) -> Floats:
    """Sequences of one length, [N, S]: the vectors of these rows of all their tokens."""
    vectors: Floats = session.run(None, {"input_ids": ids, "token_type_ids": segments, "rows": rows})[0]
    return vectors
