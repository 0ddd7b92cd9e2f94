"""Forward and backward of small batches as CUDA graphs: 32 short texts are bound by launches, not by arithmetic.

In: batches of any size. Each is filled up to the nearest of a few shapes, and every shape is recorded once: replaying it
adds the same gradients to the same places. Dropout draws anew from the generator, as its seed is when replayed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertkit.tasks.task import TaskBatch
from bertkit.training.finetuning.feed import Shape, fill_up

MOST_TOKENS = 16384  # beyond this a device is busy anyway, and a graph would only hold memory
STEPS_PER_OCTAVE = 4  # of token counts: at most a quarter is dummies
LEAST_TOKENS = 128
LENGTHS = (64, 128, 256, 512)
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
    sequences = -(-len(batch.inputs) // 8) * 8
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
    """The recordings of an objective. Gradients lie where they are; zero them in place, never drop them."""

    def __init__(self, objective: nn.Module, parameters: list[nn.Parameter]) -> None:
        self.objective, self.parameters = objective, parameters
        self.recordings: dict[tuple[Shape, tuple[torch.dtype, ...]], Recording] = {}
        self._pool = torch.cuda.graph_pool_handle()
        for p in parameters:
            p.grad = torch.zeros_like(p)

    def differentiate(self, batch: TaskBatch, whole: Tensor) -> Tensor | None:
        """Add this batch's gradients; its sums come back. None where the batch is too large."""
        shape = shape_for(batch)
        if shape is None:
            return None
        filled = fill_up(batch, shape)
        key = (shape, (filled.targets.dtype,))
        if key not in self.recordings:
            self.recordings[key] = self._record(filled, whole)
        recording = self.recordings[key]
        copy_batch(filled, recording.batch)
        recording.whole.copy_(whole, non_blocking=True)
        recording.graph.replay()
        return recording.sums.clone()

    def _record(self, batch: TaskBatch, whole: Tensor) -> Recording:
        own, denominators = batch.to(whole.device), whole.clone()
        grads = [p.grad for p in self.parameters if p.grad is not None]
        kept = [grad.clone() for grad in grads]  # of micro-batches before this one
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self._run(own, denominators)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            sums = self._run(own, denominators)
        torch._foreach_copy_(grads, kept)
        return Recording(own, denominators, graph, sums)

    def _run(self, batch: TaskBatch, whole: Tensor) -> Tensor:
        loss, sums = self.objective(batch, whole)
        loss.backward()
        found: Tensor = sums
        return found

    def zero_gradients(self) -> None:
        """For the next step."""
        torch._foreach_zero_([p.grad for p in self.parameters if p.grad is not None])


def copy_batch(source: TaskBatch, target: TaskBatch) -> None:
    """Into the recording's own tensors."""
    pairs = [
        (source.inputs.token_ids, target.inputs.token_ids),
        (source.inputs.segment_ids, target.inputs.segment_ids),
        (source.inputs.position_ids, target.inputs.position_ids),
        (source.inputs.cu_seqlens, target.inputs.cu_seqlens),
        (source.rows, target.rows),
        (source.targets, target.targets),
    ]
    for here, there in pairs:
        there.copy_(here.pin_memory(), non_blocking=True)
