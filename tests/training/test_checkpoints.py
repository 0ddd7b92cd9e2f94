"""Checkpoints: whole or not there, finite, kept as asked, and a full disk leaves the last good one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.inference.loading import load
from bertkit.model import BertModel
from bertkit.training.checkpoints import CheckpointFolder, fingerprint
from tests.training.tiny import recipe, tokenizer

ROOT = Path(__file__).parents[2]


def model(seed: int = 0) -> BertModel:
    torch.manual_seed(seed)
    return BertModel(recipe().model.config(tokenizer().vocab_size, next_sentence=True))


def save(folder: CheckpointFolder, made: BertModel, step: int, *, is_best: bool = False) -> Path:
    optimizer = {"a/exp_avg": torch.full((3,), float(step)), "a/step": torch.tensor(float(step))}
    return folder.save(made, tokenizer(), optimizer, {"step": step}, is_best=is_best)


def test_everything_comes_back(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    assert folder.load() is None
    assert folder.last_step() is None
    made = model()
    save(folder, made, 5, is_best=True)
    found = folder.load()
    assert found is not None
    assert found.state["step"] == folder.last_step() == 5
    assert fingerprint(found.model.named_parameters()) == fingerprint(made.named_parameters())
    assert found.optimizer["a/step"].shape == ()
    assert found.optimizer["a/exp_avg"].tolist() == [5.0] * 3


def test_a_checkpoint_is_a_model_to_use(tmp_path: Path) -> None:
    save(CheckpointFolder(tmp_path), model(), 5)
    assert len(load(tmp_path / "last", device="cpu").fill_mask("w1 [MASK] w2")) == 1


def test_old_ones_go_but_the_best_and_the_last_stay(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    for step in range(1, 7):
        save(folder, model(), step, is_best=step == 2)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == [f"step-{n:08d}" for n in (2, 5, 6)]
    assert os.readlink(tmp_path / "best") == "step-00000002"
    assert not list(tmp_path.glob(".writing*"))


def test_values_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    folder, made = CheckpointFolder(tmp_path), model()
    save(folder, made, 1)
    made.encoder.layers[0].get_parameter("up.weight").data[0, 0] = float("nan")
    with pytest.raises(BertkitError, match=r"encoder.layers.0.up.weight is not finite after step 2"):
        save(folder, made, 2)
    assert folder.last_step() == 1


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    path = save(folder, model(), 1) / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BertkitError, match=r"optimizer.safetensors is missing or cut short"):
        folder.load()


def test_what_a_kill_left_is_swept_and_the_best_pointed_to(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    save(folder, model(), 1, is_best=True)
    save(folder, model(), 2, is_best=True)
    folder._point("best", tmp_path / "step-00000001")  # killed between the two pointers
    (tmp_path / ".writing-step-00000003").mkdir()
    folder.clean()
    assert os.readlink(tmp_path / "best") == "step-00000002"
    assert not list(tmp_path.glob(".writing*"))


def test_a_step_that_is_saved_anew_takes_the_place_of_the_old(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for step in (3, 4):
        save(folder, model(), step)
    folder._point("last", tmp_path / "step-00000003")
    save(folder, model(7), 4)
    found = folder.load()
    assert found is not None
    assert fingerprint(found.model.named_parameters()) == fingerprint(model(7).named_parameters())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last", "step-00000003", "step-00000004"]


def test_a_copy_without_its_links_is_refused_not_begun_anew(tmp_path: Path) -> None:
    save(CheckpointFolder(tmp_path / "run"), model(), 4)
    shutil.copytree(tmp_path / "run", tmp_path / "copy", symlinks=False)
    shutil.copytree(tmp_path / "run", tmp_path / "gone", symlinks=True)
    shutil.rmtree(tmp_path / "gone" / "step-00000004")
    for name, said in (("copy", "is a folder and not a link"), ("gone", "step-00000004, which is not there")):
        folder = CheckpointFolder(tmp_path / name)
        for ask in (folder.last_step, folder.load, folder.clean):
            with pytest.raises(BertkitError, match=said):
                ask()


FULL_DISK = """
import json, resource, sys
from pathlib import Path
from bertkit.errors import BertkitError
from bertkit.training.checkpoints import CheckpointFolder
from tests.training.test_checkpoints import model, save
folder = CheckpointFolder(Path(sys.argv[1]))
save(folder, model(), 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    save(folder, model(), 2)
except BertkitError as error:
    print(json.dumps(str(error)))
"""


@pytest.mark.parametrize("limit", [100, 5000], ids=["weights", "tokenizer"])
def test_no_room_leaves_the_last_good_one_and_says_so(tmp_path: Path, limit: int) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path), str(limit)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    line = json.loads(said)
    assert line.startswith("cannot save step 2")
    assert "the last good checkpoint is step 1" in line
    assert "\n" not in line
    folder = CheckpointFolder(tmp_path)
    found = folder.load()
    assert found is not None
    assert found.state["step"] == 1
    assert not list(tmp_path.glob(".writing*"))
