"""Shapes that recorded graphs share: every batch fits into its own, and replaying gives the gradients of computing."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.model import BertModel, preset
from bertkit.tasks.task import Item, TaskBatch, collate
from bertkit.training.finetuning.feed import fill_up
from bertkit.training.finetuning.graphs import MOST_TOKENS, Graphs, round_up_tokens, shape_for
from bertkit.training.finetuning.loop import TaskObjective
from bertkit.training.objective import make_objective
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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run by `make test-gpu`")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_replaying_gives_the_gradients_of_computing(dropout: float) -> None:
    task = binary_task()
    torch.manual_seed(0)
    config = preset("tiny", **{**SIZES, "vocab_size": 40, "hidden_dropout": dropout, "attention_dropout": dropout})
    model = BertModel(task.configure(config)).cuda().train()
    objective = make_objective(TaskObjective(model, task), torch.bfloat16)
    parameters = list(model.parameters())
    graphs, whole = Graphs(objective, parameters), torch.tensor([7.0], device="cuda")
    for sizes in ([5, 9, 30], [3, 3], [5, 9, 29]):  # the third replays what the first recorded
        batch = make_batch(sizes)
        graphs.zero_gradients()
        torch.manual_seed(3)
        sums = graphs.differentiate(batch, whole)
        replayed = [p.grad.clone() for p in parameters if p.grad is not None]
        graphs.zero_gradients()
        torch.manual_seed(3)
        shape = shape_for(batch)
        assert shape is not None
        loss, expected = objective(fill_up(batch, shape).to("cuda"), whole)
        loss.backward()
        assert sums is not None
        torch.testing.assert_close(sums, expected)
        for one, p in zip(replayed, parameters, strict=True):
            assert p.grad is not None
            torch.testing.assert_close(one, p.grad, rtol=1e-3, atol=1e-5)
    assert len(graphs.recordings) == 2
