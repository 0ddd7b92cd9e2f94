"""Shapes that recorded graphs share: every batch fits into its own, and replaying gives the gradients of computing."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.model import BertModel, preset
from bertkit.tasks.task import Item, TaskBatch, collate
from bertkit.training.finetuning.feed import fill_up
from bertkit.training.finetuning.graphs import MOST_TOKENS, Graphs, as_out_of_memory, round_up_tokens, shape_for
from bertkit.training.finetuning.loop import TaskObjective
from bertkit.training.finetuning.narrow import NarrowStep
from bertkit.training.objective import make_objective
from bertkit.training.used_rows import UsedRows
from tests.training.tiny import SIZES
from tests.training.tiny_tasks import binary_task

lengths = st.lists(st.integers(2, 512), min_size=1, max_size=48)


def make_batch(sizes: list[int], *, every_row: bool = False) -> TaskBatch:
    items = []
    for number, size in enumerate(sizes):
        rows = np.arange(size) if every_row else np.zeros(1, dtype=np.int64)
        targets = np.full(len(rows), number % 2)
        items.append(Item([5 + (number + place) % 30 for place in range(size)], [0] * size, rows, targets, number))
    return collate(items)


@settings(deadline=None, max_examples=200)
@given(lengths, st.booleans())
def test_every_batch_fits_into_its_shape(sizes: list[int], every_row: bool) -> None:
    batch = make_batch(sizes, every_row=every_row)
    shape = shape_for(batch)
    if shape is None:
        assert round_up_tokens(sum(sizes)) > MOST_TOKENS
        return
    filled = fill_up(batch, shape)
    assert filled.inputs.num_tokens == shape.num_tokens
    assert len(filled.inputs) == shape.num_sequences
    assert len(filled.rows) == len(filled.targets) == shape.num_rows
    assert int(filled.inputs.cu_seqlens[-1]) == shape.num_tokens


@given(st.integers(1, MOST_TOKENS))
def test_at_most_a_quarter_is_added(tokens: int) -> None:
    size = round_up_tokens(tokens)
    assert tokens <= size <= max(128, tokens * 1.25, tokens + 32)


def test_few_shapes_serve_batches_of_short_texts() -> None:
    random = np.random.default_rng(0)
    shapes = {shape_for(make_batch(random.integers(5, 50, 32).tolist())) for _ in range(300)}
    assert len(shapes) <= 4
    long = {shape_for(make_batch(random.integers(30, 400, random.integers(32, 41)).tolist())) for _ in range(300)}
    assert len(long) <= 10  # each has to be recorded


def make_objective_of(dropout: float) -> tuple[TaskObjective, list[torch.nn.Parameter]]:
    task = binary_task()
    torch.manual_seed(0)
    config = preset("tiny", **{**SIZES, "vocab_size": 40, "hidden_dropout": dropout, "attention_dropout": dropout})
    model = BertModel(task.configure(config)).train()
    return TaskObjective(model, task), list(model.parameters())


@pytest.mark.parametrize("in_rows", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_narrow_copies_give_the_bits_of_casting_each_weight(dropout: float, in_rows: bool) -> None:
    """Two steps of one and of two micro-batches, against the objective that pre-training uses."""
    objective, parameters = make_objective_of(dropout)
    reference, whole = make_objective(objective, torch.bfloat16), torch.tensor([7.0])
    steps = [[[5, 9, 30]], [[3, 3], [12, 4]]]
    expected = []
    for step in steps:
        objective.zero_grad()
        for seed, sizes in enumerate(step):
            torch.manual_seed(seed)
            loss, sums = reference(make_batch(sizes), whole)
            loss.backward()
            expected.append(sums)
        expected += [p.grad.clone() for p in parameters if p.grad is not None]
    objective.zero_grad()
    used_rows = UsedRows.of(objective) if in_rows else None
    narrow, found = NarrowStep(objective, torch.bfloat16, used_rows), []
    for step in steps:
        if used_rows:
            used_rows.clear()
        for seed, sizes in enumerate(step):
            torch.manual_seed(seed)
            found.append(narrow.differentiate(make_batch(sizes), whole, is_first=seed == 0))
        found += [p.grad.clone() for p in parameters if p.grad is not None]
    assert len(found) == len(expected) == 3 + 2 * len(parameters)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert {p.grad.dtype for p in parameters if p.grad is not None} == {torch.float32}


def test_narrow_copies_follow_the_weights_with_each_step() -> None:
    objective, parameters = make_objective_of(0.0)
    narrow, whole, batch = NarrowStep(objective, torch.bfloat16), torch.tensor([7.0]), make_batch([5, 9])
    before = narrow.differentiate(batch, whole, is_first=True)
    with torch.no_grad():
        for p in parameters:
            p.mul_(0.5)
    assert torch.equal(narrow.differentiate(batch, whole, is_first=False), before)  # within a step they stay
    assert not torch.equal(narrow.differentiate(batch, whole, is_first=True), before)


def test_memory_that_breaks_a_recording_off_is_told_as_such() -> None:
    def fail_twice() -> None:
        try:
            raise torch.OutOfMemoryError("too large")
        finally:
            raise RuntimeError("the capture was invalidated")

    with pytest.raises(torch.OutOfMemoryError, match="too large"), as_out_of_memory():
        fail_twice()
    with pytest.raises(RuntimeError, match="something else"), as_out_of_memory():
        raise RuntimeError("something else")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run by `make test-gpu`")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_replaying_gives_the_gradients_of_computing(dropout: float) -> None:
    objective, _ = make_objective_of(dropout)
    objective.cuda()
    step = NarrowStep(objective, torch.bfloat16)
    graphs, whole = Graphs(step), torch.tensor([7.0], device="cuda")
    for _ in range(2):  # again after their memory was given back
        for sizes in ([5, 9, 30], [30] * 5, [5, 9, 29]):  # the third replays what the first recorded
            shape = shape_for(make_batch(sizes))
            assert shape is not None
            batch = fill_up(make_batch(sizes), shape)
            torch.manual_seed(3)
            sums = graphs.differentiate(batch, whole, is_first=True)
            torch.manual_seed(4)
            more = graphs.differentiate(batch, whole, is_first=False)
            assert sums is not None
            assert more is not None
            replayed = [p.grad.clone() for p in step.parameters if p.grad is not None]
            torch.manual_seed(3)
            expected = step.differentiate(batch.to("cuda"), whole, is_first=True)
            torch.manual_seed(4)
            torch.testing.assert_close(more, step.differentiate(batch.to("cuda"), whole, is_first=False))
            torch.testing.assert_close(sums, expected)
            for one, p in zip(replayed, step.parameters, strict=True):
                assert p.grad is not None
                torch.testing.assert_close(one, p.grad, rtol=1e-3, atol=1e-5)
        assert len(graphs.recordings) == 4
        graphs.forget()
        assert not graphs.recordings
