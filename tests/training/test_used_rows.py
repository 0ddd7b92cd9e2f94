"""Gradients of the rows in use are, to the bit, those of all word embeddings."""

from pathlib import Path

import pytest
import torch

from bertkit.training.finetuning.run import FinetuneRun
from bertkit.training.used_rows import UsedRows
from tests.training.tiny_tasks import CPU, make_base, make_config, make_data, weights_of


def train(folder: Path, *, in_rows: bool, precision: str) -> tuple[FinetuneRun, str]:
    """Three steps of several micro-batches, with dropout."""
    base = make_base(folder, hidden_dropout=0.1)
    config = make_config(micro_tokens=30, precision=precision, epochs=1)
    run = FinetuneRun(base, make_data(base, 24, 0), config, CPU)
    assert run.loop.used_rows
    if not in_rows:
        run.loop.used_rows = None
        if run.loop.narrow:
            run.loop.narrow = type(run.loop.narrow)(run.loop.narrow.objective, torch.bfloat16)
    assert len(run.feed.parts_of(0, 30)) > 1
    run.loop.run(lambda records: None)
    return run, weights_of(run.model)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_ends_with_the_same_weights(tmp_path: Path, precision: str) -> None:
    run, weights = train(tmp_path / "rows", in_rows=True, precision=precision)
    assert weights == train(tmp_path / "all", in_rows=False, precision=precision)[1]
    table = run.model.encoder.embeddings.token.weight
    assert run.loop.used_rows
    assert table.grad is run.loop.used_rows.gradient
    assert not table.grad.any()  # nothing is left of the last step


def test_frozen_embeddings_need_none(tmp_path: Path) -> None:
    base = make_base(tmp_path)
    run = FinetuneRun(base, make_data(base, 8, 0), make_config(), CPU)
    objective = run.loop.plain_objective
    assert UsedRows.of(objective) is not None
    run.model.encoder.embeddings.token.weight.requires_grad_(False)
    assert UsedRows.of(objective) is None
