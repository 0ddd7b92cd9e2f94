"""Forward and backward of small batches as CUDA graphs: 32 short texts are bound by launches, not by arithmetic.

In: batches in few shapes, as `shape_for` names them and the feed fills them up. Each shape is recorded once; replaying it
writes its gradients to the same places. Dropout draws anew from the generator, as its seed is when replayed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from bertkit.tasks.task import TaskBatch
from bertkit.training.finetuning.feed import Shape
from bertkit.training.finetuning.narrow import NarrowStep

MOST_TOKENS = 16384  # beyond this a device is busy anyway, and a graph would only hold memory
STEPS_PER_OCTAVE = 4  # of token counts: at most a quarter is dummies
LEAST_TOKENS = 128
LENGTHS = (128, 512)  # of the longest sequence: flash attention skips what a sequence does not fill
SEQUENCES = 16  # their number is rounded up to a multiple of this; empty ones cost nothing
WARM_UPS = 2  # before recording: libraries choose and allocate in their first calls


@dataclass(frozen=True)
class Recording:
    """A shape's own inputs, its graph, and where its sums appear."""

    batch: TaskBatch
    whole: Tensor
    graph: torch.cuda.CUDAGraph
    sums: Tensor


def shape_for(batch: TaskBatch) -> Shape | None:
    """The nearest shape that holds this batch; None where a graph would not pay."""
    tokens, longest = batch.inputs.num_tokens, batch.inputs.max_seqlen
    length = next((length for length in LENGTHS if length >= longest), longest)
    size = round_up_tokens(tokens)
    if size > MOST_TOKENS:
        return None
    sequences = -(-len(batch.inputs) // SEQUENCES) * SEQUENCES
    rows = size if len(batch.rows) > sequences else sequences
    return Shape(size, sequences + -(-size // (STEPS_PER_OCTAVE * length)) + 1, rows, length)


def round_up_tokens(tokens: int) -> int:
    """Up to the next of four steps an octave, each a multiple of 32."""
    octave = LEAST_TOKENS
    while octave * 2 < tokens:
        octave *= 2
    step = max(32, octave // STEPS_PER_OCTAVE)
    return max(LEAST_TOKENS, -(-tokens // step) * step)


class Graphs:
    """The recordings of a step. Gradients lie where they are and are never dropped."""

    def __init__(self, step: NarrowStep) -> None:
        self.step = step
        self.recordings: dict[tuple[Shape, torch.dtype, bool], Recording] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def differentiate(self, batch: TaskBatch, whole: Tensor, *, is_first: bool) -> Tensor | None:
        """As the step's own; None where the batch is so large that a graph would not pay."""
        if batch.inputs.num_tokens > MOST_TOKENS:
            return None
        key = (shape_of(batch), batch.targets.dtype, is_first)
        if key not in self.recordings:
            self.recordings[key] = self._record(batch, whole, is_first=is_first)
        recording = self.recordings[key]
        copy_batch(batch, recording.batch)
        recording.whole.copy_(whole, non_blocking=True)
        recording.graph.replay()
        return recording.sums.clone()

    def forget(self) -> None:
        """Give the memory of all recordings back; shapes are recorded anew when they come."""
        for recording in self.recordings.values():
            recording.graph.reset()
        self.recordings.clear()
        self._pool = torch.cuda.graph_pool_handle()

    def _record(self, batch: TaskBatch, whole: Tensor, *, is_first: bool) -> Recording:
        own, denominators = batch.to(whole.device), whole.clone()
        generator, before = torch.cuda.default_generators[whole.device.index or 0], torch.cuda.current_stream()
        seed = generator.initial_seed()
        grads = [p.grad for p in self.step.parameters if p.grad is not None]
        kept = [] if is_first else [grad.clone() for grad in grads]  # of micro-batches before this one
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self.step.differentiate(own, denominators, is_first=is_first)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # a recording has memory of its own and cannot use what warming up left
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads pin memory meanwhile, which a recording that watched them too would not survive.
            with as_out_of_memory(), torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                sums = self.step.differentiate(own, denominators, is_first=is_first)
        finally:
            torch.cuda.set_stream(before)  # a recording that failed leaves its own stream behind
        generator.manual_seed(seed)  # warming up drew from it; dropout is to be the same whenever a shape is recorded
        if kept:
            torch._foreach_copy_(grads, kept)
        return Recording(own, denominators, graph, sums)


@contextmanager
def as_out_of_memory() -> Iterator[None]:
    """A recording that memory broke off fails a second time, with another error, when it is closed."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if isinstance(error.__context__, torch.OutOfMemoryError):
            raise torch.OutOfMemoryError(str(error.__context__)) from None
        raise


def shape_of(batch: TaskBatch) -> Shape:
    """The sizes of a batch as they are."""
    return Shape(batch.inputs.num_tokens, len(batch.inputs), len(batch.rows), batch.inputs.max_seqlen)


def copy_batch(source: TaskBatch, target: TaskBatch) -> None:
    """Into the recording's own tensors; the feed has pinned the source."""
    pairs = [
        (source.inputs.token_ids, target.inputs.token_ids),
        (source.inputs.segment_ids, target.inputs.segment_ids),
        (source.inputs.position_ids, target.inputs.position_ids),
        (source.inputs.cu_seqlens, target.inputs.cu_seqlens),
        (source.rows, target.rows),
        (source.targets, target.targets),
    ]
    for here, there in pairs:
        there.copy_(here, non_blocking=True)
