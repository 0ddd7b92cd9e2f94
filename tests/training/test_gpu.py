"""On a CUDA device: bf16 close to float32, and a deterministic run that resumes to the same bits."""

import shutil
from pathlib import Path

import pytest
import torch

from bertkit.training.checkpoints import CheckpointFolder
from bertkit.training.journal import read_journal
from bertkit.training.optimizers import OptimizerConfig
from bertkit.training.recipe import ModelRecipe
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
