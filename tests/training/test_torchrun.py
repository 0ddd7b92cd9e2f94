"""Several processes under torchrun, with copies of the weights or shards: the curve of one, a dead one ends the run.

BERTKIT_SLOW=1 compares 100 steps in place of 20.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertkit.training.checkpoints import CheckpointFolder
from bertkit.training.growth import GrowthConfig
from bertkit.training.journal import read_journal
from tests.training.tiny import recipe, run

ROOT = Path(__file__).parents[2]
SLOW = bool(os.environ.get("BERTKIT_SLOW"))
STEPS = 100 if SLOW else 20
LONGEST = 120.0


def command(processes: int, *arguments: str) -> list[str]:
    tiny = ["-m", "tests.training.tiny", *arguments]
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, *(several if processes > 1 else []), *tiny]


def start(processes: int, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    made = command(processes, *arguments)
    return subprocess.Popen(made, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, err


def curve(out: Path, name: str = "loss") -> list[float]:
    lines = [line for line in read_journal(out) if line["kind"] == "step"]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    return [line[name] for line in lines]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    finish(start(1, str(out), str(STEPS)))
    return out


@pytest.mark.parametrize("flags", [[], ["--fsdp"]], ids=["ddp", "fsdp"])
def test_two_processes_follow_the_curve_of_one(alone: Path, tmp_path: Path, flags: list[str]) -> None:
    out = tmp_path / "run"
    finish(start(2, str(out), str(STEPS), *flags))
    assert curve(out) == pytest.approx(curve(alone), abs=1e-5)
    assert curve(out, "grad_norm") == pytest.approx(curve(alone, "grad_norm"), rel=1e-4)  # it is clipped by
    assert (out / "report.html").is_file()


def test_two_processes_grow_alike(tmp_path: Path) -> None:
    several = start(2, str(tmp_path / "two"), str(STEPS), "--grow")
    run(tmp_path / "one", recipe(steps=STEPS, growth=GrowthConfig((1,), (0.5,))))
    finish(several)
    assert curve(tmp_path / "two") == pytest.approx(curve(tmp_path / "one"), abs=1e-5)


@pytest.mark.skipif(not SLOW, reason="BERTKIT_SLOW=1 runs it; test_sharding.py has it in one process")
def test_shards_go_on_from_a_run_of_one(alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(alone, out, symlinks=True)
    folder = CheckpointFolder(out / "checkpoints")
    earlier = sorted(path.name for path in folder.folder.glob("step-*"))[-2]
    folder._point("last", Path(earlier))
    finish(start(2, str(out), str(STEPS), "--resume", "--fsdp", "--sharded"))
    assert curve(out) == pytest.approx(curve(alone), abs=1e-5)
    assert [path.suffix for path in (out / "checkpoints" / "last" / "optimizer").iterdir()] == [".safetensors"] * 2
    assert folder.load() is not None  # the weights lie whole beside the shards


@pytest.mark.parametrize("flags", [[], ["--fsdp", "--sharded"]], ids=["ddp", "fsdp"])
def test_a_dead_process_ends_the_run_and_one_alone_goes_on(alone: Path, tmp_path: Path, flags: list[str]) -> None:
    out = tmp_path / "run"
    process = start(2, str(out), str(STEPS), *flags)
    deadline = time.monotonic() + LONGEST
    while (CheckpointFolder(out / "checkpoints").last_step() or 0) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(second_of(process.pid), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "another process of this run died" in err or "SIGKILL" in err or "Signal 9" in err
    finish(start(1, str(out), str(STEPS), "--resume"))
    assert curve(out) == pytest.approx(curve(alone), abs=1e-5)


def second_of(parent: int) -> int:
    """The process of rank 1."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if b"\0RANK=1\0" in b"\0" + Path(f"/proc/{child}/environ").read_bytes():
            return int(child)
    raise AssertionError("rank 1 is not there")
