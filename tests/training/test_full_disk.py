"""A disk that is full: really (a small tmpfs in a namespace of its own), and by an error at every call of a save.

The last good checkpoint stays, one clear line says so, and with room again the run ends as if nothing had been.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bertkit.errors import BertkitError
from bertkit.training import checkpoints
from bertkit.training.checkpoints import CheckpointFolder
from tests.training.test_checkpoints import model, save

ROOT = Path(__file__).parents[2]
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    command = [*NAMESPACE, "mount", "-t", "tmpfs", "none", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


SCRIPT = """
import json, subprocess, sys
from pathlib import Path
import torch
from bertkit.errors import BertkitError
from bertkit.training.checkpoints import CheckpointFolder
from tests.training.tiny import recipe, run

torch.set_num_threads(1)
disk, beside = Path(sys.argv[1]), Path(sys.argv[2])
whole = run(beside, recipe())
told = []
for kilobytes in (300, 400):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(disk)], check=True)
    line = "it fitted"
    try:
        run(disk / "run", recipe())
    except BertkitError as error:
        line = str(error)
    folder = CheckpointFolder(disk / "run" / "checkpoints")
    good = folder.load()
    subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
    again = run(disk / "run", recipe(), resume=True)
    told.append([line, folder.last_step() and good.state["step"], again.weights_sha256 == whole.weights_sha256])
    subprocess.run(["umount", str(disk)], check=True)
print(json.dumps(told))
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("no file system can be mounted here")
    command = [*NAMESPACE, sys.executable, "-c", SCRIPT, str(disk), str(tmp_path / "beside")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    for line, good, ends_alike in told:
        assert "No space left on device" in line
        assert "make room and start again with --resume" in line
        assert "\n" not in line
        assert f"the last good checkpoint is step {good}" in line or line.startswith("cannot write")
        assert ends_alike
    assert any("the last good checkpoint is step" in line for line, _, _ in told)


def saved(folder: CheckpointFolder, step: int) -> str | None:
    """What the save says, where it fails."""
    try:
        save(folder, model(), step, is_best=True)
    except BertkitError as error:
        return str(error)
    return None


CALLS = ["os.fsync", "os.open", "Path.mkdir", "Path.rename", "Path.symlink_to", "Path.replace", "Path.write_text"]


@pytest.mark.parametrize("call", CALLS)
def test_an_error_at_any_call_leaves_the_last_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    owner, name = {"os": os, "Path": Path}[call.split(".", maxsplit=1)[0]], call.split(".")[1]
    original, calls, fails_at = getattr(owner, name), 0, 0

    def fail(*arguments, **keywords):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*arguments, **keywords)

    monkeypatch.setattr(owner, name, fail)
    folder, num_failed, step = CheckpointFolder(tmp_path / "checkpoints"), 0, 1
    save(folder, model(), step, is_best=True)
    while fails_at <= calls:  # the first call fails, then the second, ... until a save makes no more calls
        before, step, calls, fails_at = folder.last_step(), step + 1, 0, fails_at + 1
        line = saved(folder, step)
        if line:
            num_failed += 1
            assert line.startswith(f"cannot save step {step}")
            assert f"No space left on device; the last good checkpoint is step {folder.last_step()};" in line
            assert folder.last_step() in (before, step)  # it may have been whole by then
        else:
            assert folder.last_step() == step  # what failed was only tidying
        found = folder.load()
        assert found is not None
        assert found.state["step"] == folder.last_step()
    assert num_failed >= 1
    monkeypatch.undo()
    folder.clean()
    assert not list(folder.folder.glob(f"{checkpoints.WRITING}*"))
