"""On a CUDA device: bf16 close to float32, a deterministic run that resumes to the same bits, shards."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from bertkit.training.checkpoints import CheckpointFolder
from bertkit.training.growth import GrowthConfig
from bertkit.training.journal import read_journal
from bertkit.training.objective import Objective, make_objective
from bertkit.training.optimizers.build import OptimizerConfig, clip_gradients
from bertkit.training.recipe import ModelRecipe
from bertkit.training.sharding import shard_objective
from tests.training.test_sharding import accumulate, make_model
from tests.training.tiny import SIZES, recipe, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_half_precision_follows_float32(tmp_path: Path) -> None:
    model = ModelRecipe(changes={**SIZES, "hidden_dropout": 0.0, "attention_dropout": 0.0})
    curves = []
    for precision in ("float32", "bfloat16"):
        run(tmp_path / precision, recipe(device="cuda", precision=precision, model=model))
        curves.append([x["loss"] for x in read_journal(tmp_path / precision) if x["kind"] == "step"])
    assert curves[1] == pytest.approx(curves[0], abs=0.1)


@pytest.mark.parametrize("name", ["adamw", "lamb", "muon"])
def test_a_deterministic_run_resumes_to_the_same_bits(tmp_path: Path, name: str) -> None:
    made = recipe(device="cuda", deterministic=True, optimizer=OptimizerConfig(name))  # type: ignore[arg-type]
    whole = run(tmp_path / "whole", made)
    shutil.copytree(tmp_path / "whole", tmp_path / "part", symlinks=True)
    CheckpointFolder(tmp_path / "part" / "checkpoints")._point("last", Path("step-00000009"))
    part = run(tmp_path / "part", made, resume=True)
    assert (part.weights_sha256, part.optimizer_sha256) == (whole.weights_sha256, whole.optimizer_sha256)


def test_a_growing_model_follows_the_plain_curve_by_the_fast_kernels(tmp_path: Path) -> None:
    sizes = {"num_layers": 4, "hidden_size": 64, "num_heads": 2, "intermediate_size": 128}
    model = ModelRecipe(start="zero", changes={**SIZES, **sizes, "hidden_dropout": 0.0, "attention_dropout": 0.0})
    how = {"model": model, "growth": GrowthConfig((1, 2), (0.3, 0.6)), "log_layers": 4}
    made = recipe(device="cuda", precision="bfloat16", optimizer=OptimizerConfig("muon"), **how)
    curves = []
    for kernels in ("plain", "fast"):
        run(tmp_path / kernels, replace(made, kernels=kernels))
        curves.append([x["loss"] for x in read_journal(tmp_path / kernels) if x["kind"] == "step"])
    assert curves[1] == pytest.approx(curves[0], abs=0.1)
    CheckpointFolder(tmp_path / "fast" / "checkpoints")._point("last", Path("step-00000009"))
    run(tmp_path / "fast", replace(made, kernels="fast"), resume=True)
    again = [x["loss"] for x in read_journal(tmp_path / "fast") if x["kind"] == "step"]
    assert again == pytest.approx(curves[1], abs=0.1)


def test_shards_in_half_precision_have_the_plain_numbers(tmp_path: Path) -> None:
    plain, model = (make_model().cuda() for _ in range(2))
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        expected = accumulate(make_objective(Objective(plain), torch.bfloat16))
        found = accumulate(shard_objective(model, torch.device("cuda", 0), torch.bfloat16))
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
        norms = [clip_gradients(list(one.parameters()), 0.5) for one in (plain, model)]
        torch.testing.assert_close(norms[1], norms[0], rtol=2e-2, atol=0.0)
    finally:
        dist.destroy_process_group()
