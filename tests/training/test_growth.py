"""Growing depth: copies of layers and of moments, at their step, resumed alike, within time; and what is refused."""

import json
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from bertkit.corpus.masking import MaskingConfig
from bertkit.errors import BertkitError
from bertkit.model import BertModel, preset
from bertkit.model.encoder import Layer
from bertkit.model.packed import pack
from bertkit.training.budget import TimeBudget
from bertkit.training.checkpoints import CheckpointConfig, CheckpointFolder
from bertkit.training.growth import Growth, GrowthConfig, choose_origins
from bertkit.training.journal import read_journal
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers, export_state
from bertkit.training.plan import Stage
from bertkit.training.recipe import Recipe
from bertkit.training.stepping import Progress
from tests.training.tiny import recipe, run

CONFIG = preset("tiny", vocab_size=30, num_layers=2, hidden_size=16, num_heads=2, intermediate_size=32)
GROWTH = GrowthConfig((1, 2), (0.3, 0.6))


def growing(**changes: Any) -> Recipe:
    """Four layers in the end; steps 0 to 3 have one, 4 to 7 two."""
    model = replace(recipe().model, changes={**recipe().model.changes, "num_layers": 4})
    return recipe(growth=GROWTH, model=model, **changes)


def trained(config: OptimizerConfig) -> tuple[BertModel, list[torch.optim.Optimizer]]:
    """A model whose every weight and moment is another."""
    torch.manual_seed(0)
    model = BertModel(CONFIG)
    optimizers = build_optimizers(model, config)
    for p in model.parameters():
        p.grad = torch.randn(p.shape)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizers


def layer_tensors(tensors: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    prefix = f"encoder.layers.{number}."
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


@pytest.mark.parametrize("name", ["adamw", "muon", "lamb"])
@pytest.mark.parametrize(("copying", "origins"), [("stack", [0, 1, 0, 1]), ("interleave", [0, 0, 1, 1])])
def test_weights_and_moments_are_copied(name: Any, copying: Any, origins: list[int]) -> None:
    config = OptimizerConfig(name)
    model, optimizers = trained(config)
    weights = {key: p.detach().clone() for key, p in model.named_parameters()}
    moments = {key: tensor.clone() for key, tensor in export_state(optimizers, model).items()}
    made = Growth(GrowthConfig((2,), (0.5,), copying), 4, config).grow(model, optimizers, 4)
    assert model.config.num_layers == len(model.encoder.layers) == 4
    grown: dict[str, Tensor] = dict(model.named_parameters())
    state = export_state(made, model)
    for number, origin in enumerate(origins):
        for before, after in ((weights, grown), (moments, state)):
            expected, found = layer_tensors(before, origin), layer_tensors(after, number)
            assert expected.keys() == found.keys()
            assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())
    assert all(torch.equal(grown[key], tensor) for key, tensor in weights.items() if "layers" not in key)
    assert all(torch.equal(state[key], tensor) for key, tensor in moments.items() if "layers" not in key)
    assert len({p.data_ptr() for p in grown.values()}) == len(grown)  # copies, not the same weights twice
    assert {id(p) for o in made for group in o.param_groups for p in group["params"]} == {id(p) for p in grown.values()}


@pytest.mark.parametrize(("scale", "shift", "nearly"), [(1.3, 0.2, 1e-5), (None, None, 0.1)])
def test_silent_layers_change_nothing_at_first(scale: float | None, shift: float | None, nearly: float) -> None:
    model, optimizers = trained(OptimizerConfig("muon"))
    norm = cast(Layer, model.encoder.layers[-1]).output_norm
    with torch.no_grad():  # the same for all channels: exact; otherwise as nearly as tokens have one deviation
        norm.weight.copy_(torch.linspace(0.9, 1.5, 16) if scale is None else torch.tensor(scale))
        norm.bias.copy_(torch.linspace(-0.2, 0.3, 16) if shift is None else torch.tensor(shift))
    batch = pack([[2, 7, 8, 9, 3], [2, 11, 3]])
    before = model.eval().encoder(batch)
    Growth(GrowthConfig((2,), (0.5,), "silent"), 6, OptimizerConfig("muon")).grow(model, optimizers, 6)
    assert len(model.encoder.layers) == 6
    assert (model.encoder(batch) - before).abs().mean() < nearly
    learns = model.encoder(batch).square().sum()
    learns.backward()
    for layer in cast(list[Layer], list(model.encoder.layers[2:])):
        assert layer.down.weight.grad is not None
        assert layer.down.weight.grad.abs().max() > 0


def test_silent_layers_begin_without_moments() -> None:
    model, optimizers = trained(OptimizerConfig("adamw"))
    made = Growth(GrowthConfig((2,), (0.5,), "silent"), 4, OptimizerConfig("adamw")).grow(model, optimizers, 4)
    state = export_state(made, model)
    for number in range(4):
        for name, tensor in layer_tensors(state, number).items():
            assert bool(tensor.any()) == (number < 2 or name.endswith("/step")), name
    weights: dict[str, Tensor] = dict(model.named_parameters())
    for number in (2, 3):  # what is not silent is copied
        for name in ("qkv.weight", "up.weight", "up.bias"):
            assert torch.equal(layer_tensors(weights, number)[name], layer_tensors(weights, number - 2)[name])


def test_layers_are_copied_evenly_also_where_depths_do_not_divide() -> None:
    assert choose_origins(3, 6, "stack") == [0, 1, 2, 0, 1, 2]
    assert choose_origins(4, 6, "stack") == [0, 1, 2, 3, 0, 1]
    assert choose_origins(4, 6, "interleave") == [0, 0, 1, 2, 2, 3]


def test_the_depth_follows_the_share_of_the_run() -> None:
    config = GrowthConfig((3, 6), (0.1, 0.25))
    assert [config.depth(share, 12) for share in (0.0, 0.09, 0.1, 0.24, 0.25, 1.0)] == [3, 3, 6, 6, 12, 12]
    assert GrowthConfig().depth(0.0, 12) == 12


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_grown_run_killed_at_any_step_is_the_run_never_killed(name: Any, tmp_path: Path) -> None:
    made = growing(optimizer=OptimizerConfig(name, 5e-3), checkpoints=CheckpointConfig(1, 99), log_every=3)
    whole = run(tmp_path / "whole", made)
    depths = []
    for step in range(12):
        folder = tmp_path / "whole" / "checkpoints" / f"step-{step:08d}"
        depths.append(json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"])
    assert depths == [1] * 5 + [2] * 4 + [4] * 3  # after so many steps; growth comes just before the next one
    final = tmp_path / "whole" / "model" / "config.json"
    assert json.loads(final.read_text(encoding="utf-8"))["num_hidden_layers"] == 4
    for step in (4, 9):  # just before a growth, and after both
        part = tmp_path / f"part-{step}"
        shutil.copytree(tmp_path / "whole", part, symlinks=True)
        CheckpointFolder(part / "checkpoints")._point("last", Path(f"step-{step:08d}"))
        again = run(part, made, resume=True)
        assert (again.weights_sha256, again.optimizer_sha256) == (whole.weights_sha256, whole.optimizer_sha256)
        assert [line["step"] for line in read_journal(part) if line["kind"] == "step"] == list(range(1, 13))


def test_a_grown_run_learns_and_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()

    def by_ticks(seconds: float, progress: Progress, looks: float, **_: object) -> TimeBudget:
        return TimeBudget(seconds, progress, looks, clock=lambda: 0.02 * next(ticks))  # each look at it takes so long

    monkeypatch.setattr("bertkit.training.run.TimeBudget", by_ticks)
    stages = (Stage(16, 64, 2, share=0.9), Stage(24, 64, 2, masking=MaskingConfig(0.3), share=0.1))
    result = run(tmp_path, replace(growing(stages=stages), steps=None, minutes=0.03))
    assert result.step == result.num_steps
    state = json.loads((tmp_path / "checkpoints" / "last" / "state.json").read_text(encoding="utf-8"))
    assert state["spent"] == pytest.approx(60 * 0.03, rel=0.2)
    assert len(list((tmp_path / "model").glob("*.safetensors"))) == 1


def test_a_run_too_short_to_grow_says_so(tmp_path: Path) -> None:
    made = replace(growing(steps=1), growth=GrowthConfig((1,), (0.9,)))
    with pytest.raises(BertkitError, match="ended with 1 of 4 layers"):
        run(tmp_path, made)


@pytest.mark.parametrize(
    ("layers", "until", "line"),
    [
        ((3,), (), "as many values each"),
        ((6, 3), (0.1, 0.2), "must be at least 1 and rise"),
        ((0,), (0.1,), "must be at least 1 and rise"),
        ((3, 6), (0.2, 0.1), "between 0 and 1 and rise"),
        ((3,), (1.0,), "between 0 and 1 and rise"),
    ],
)
def test_growth_that_cannot_be_is_refused(layers: tuple[int, ...], until: tuple[float, ...], line: str) -> None:
    with pytest.raises(BertkitError, match=line):
        GrowthConfig(layers, until)


def test_growth_does_not_go_with_shards_checkpoints_or_too_few_layers() -> None:
    with pytest.raises(BertkitError, match="which fsdp shards"):
        growing(parallel="fsdp")
    with pytest.raises(BertkitError, match=r"model\.init names a checkpoint"):
        recipe(growth=GROWTH, model=replace(recipe().model, init="somewhere", changes={}))
    with pytest.raises(BertkitError, match="ends with 2, and the model has 2 layers"):
        recipe(growth=GROWTH)
    with pytest.raises(BertkitError, match="choose one of stack, interleave, silent"):
        GrowthConfig((1,), (0.5,), "shuffle")  # type: ignore[arg-type]
