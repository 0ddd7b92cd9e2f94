"""Figures of every layer: what they are, when they are taken, and that other steps are left alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model import BertModel, preset
from bertkit.training.growth import GrowthConfig
from bertkit.training.journal import read_journal
from bertkit.training.layer_watch import LayerWatch, parts_of
from tests.training.tiny import recipe, run

CONFIG = preset("tiny", vocab_size=30, num_layers=2, hidden_size=16, num_heads=2, intermediate_size=32)


def norm(tensors: list[Any]) -> float:
    return float(torch.cat([tensor.detach().flatten() for tensor in tensors]).norm())


def test_every_weight_belongs_to_one_part() -> None:
    model = BertModel(CONFIG)
    parts = parts_of(model)
    assert list(parts) == ["embeddings", "layer_00", "layer_01", "heads"]
    found = [id(p) for parameters in parts.values() for p in parameters]
    assert sorted(found) == sorted(id(p) for p in model.parameters())


def test_norms_and_ratios_of_a_step() -> None:
    torch.manual_seed(0)
    model = BertModel(CONFIG)
    watch = LayerWatch(model, every=5)
    assert [step for step in range(11) if watch.is_due(step)] == [4, 9]
    for p in model.parameters():
        p.grad = torch.randn(p.shape)
    before = {name: [p.detach().clone() for p in parameters] for name, parameters in parts_of(model).items()}
    grads = {name: norm([p.grad for p in parameters]) for name, parameters in parts_of(model).items()}
    watch.before_update()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    watch.after_update(4)
    (line,) = watch.take()
    assert watch.take() == []
    assert line["step"] == 5
    for name in ("embeddings", "layer_00", "layer_01", "heads"):
        assert line[f"grad_norm/{name}"] == pytest.approx(grads[name], rel=1e-4)
        assert line[f"weight_norm/{name}"] == pytest.approx(norm(before[name]), rel=1e-4)
        assert line[f"update_ratio/{name}"] == pytest.approx(0.1 * grads[name] / norm(before[name]), rel=1e-4)


def test_the_journal_has_the_layers_and_the_run_is_the_same(tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", recipe())
    made = replace(recipe(), log_layers=4, log_every=3)
    assert run(tmp_path / "watched", made).weights_sha256 == plain.weights_sha256
    lines = [line for line in read_journal(tmp_path / "watched") if line["kind"] == "layers"]
    assert [line["step"] for line in lines] == [4, 8, 12]
    assert all(line[f"grad_norm/{name}"] > 0 for line in lines for name in ("embeddings", "layer_01", "heads"))
    steps = {line["step"]: line for line in read_journal(tmp_path / "plain") if line["kind"] == "step"}
    for line in lines:  # before clipping, all parts together have the gradient's norm
        parts = [value for name, value in line.items() if name.startswith("grad_norm/")]
        assert sum(value**2 for value in parts) ** 0.5 == pytest.approx(steps[line["step"]]["grad_norm"], rel=1e-4)


def test_layers_that_come_later_are_watched_too(tmp_path: Path) -> None:
    run(tmp_path, replace(recipe(), log_layers=2, growth=GrowthConfig((1,), (0.5,))))
    counts = [
        sum(name.startswith("update_ratio/layer") for name in line)
        for line in read_journal(tmp_path)
        if line["kind"] == "layers"
    ]
    assert counts == [1, 1, 1, 2, 2, 2]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BertkitError, match="which fsdp shards"):
        recipe(log_layers=5, parallel="fsdp")
    with pytest.raises(BertkitError, match="log_layers is -1"):
        recipe(log_layers=-1)
