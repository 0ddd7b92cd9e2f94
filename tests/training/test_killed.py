"""Real processes, really killed: at the end the weights and the optimizer are those of the run never killed.

BERTKIT_SLOW=1 kills twenty times in place of five.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bertkit.training.checkpoints import SLOW_SAVE, CheckpointFolder
from bertkit.training.journal import read_journal

ROOT = Path(__file__).parents[2]
STEPS = 60
SLOW = bool(os.environ.get("BERTKIT_SLOW"))
NUM_KILLS, NUM_IN_SAVES = (20, 8) if SLOW else (5, 2)
LONGEST = 60.0  # seconds that a process may take to get anywhere


def start(out: Path, *flags: str, slow_save: float = 0.0) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if slow_save:
        environment[SLOW_SAVE] = str(slow_save)
    command = [sys.executable, "-m", "tests.training.tiny", str(out), str(STEPS), *flags]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, err
    result: dict[str, Any] = json.loads(out)
    return result


def wait_for(process: subprocess.Popen[str], happened: Any) -> bool:
    """Until something happened, or the process has ended."""
    deadline = time.monotonic() + LONGEST
    while process.poll() is None and time.monotonic() < deadline:
        if happened():
            return True
        time.sleep(0.002)
    return False


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return finish(start(tmp_path_factory.mktemp("whole") / "run"))


def test_killed_at_any_moment_the_run_ends_the_same(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    out, draw, in_saves = tmp_path / "run", random.Random(0), 0
    checkpoints = out / "checkpoints"
    for number in range(NUM_KILLS):
        inside = number < NUM_IN_SAVES
        before = CheckpointFolder(checkpoints).last_step()
        process = start(out, "--resume", slow_save=0.15 if inside else 0.01)

        def moved(before: int | None = before) -> bool:  # past where it began, so that the kills move on
            now = CheckpointFolder(checkpoints).last_step()
            return now is not None and now != before

        if wait_for(process, moved):
            if inside:
                wait_for(process, lambda: any(checkpoints.glob(".writing-step*")))
            time.sleep(draw.uniform(0.0, 0.3))
        kill(process)
        in_saves += any(checkpoints.glob(".writing-step*"))  # the half-written folder proves it
        assert CheckpointFolder(checkpoints).load() is not None  # always whole
    result = finish(start(out, "--resume"))
    assert in_saves >= NUM_IN_SAVES
    assert result["step"] == STEPS
    for name in ("weights_sha256", "optimizer_sha256", "evaluation", "tokens"):
        assert result[name] == undisturbed[name], name
    steps = [line["step"] for line in read_journal(out) if line["kind"] == "step"]
    assert steps == list(range(1, STEPS + 1))  # none twice, none missing


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_writes_a_checkpoint_and_stops(
    undisturbed: dict[str, Any], tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "run"
    process = start(out, slow_save=0.02)
    wait_for(process, lambda: len(read_journal(out)) > 8)
    process.send_signal(number)
    stopped = finish(process)
    assert stopped["stopped_by"] == number.name
    assert 0 < stopped["step"] < STEPS
    assert CheckpointFolder(out / "checkpoints").last_step() == stopped["step"]
    assert finish(start(out, "--resume"))["weights_sha256"] == undisturbed["weights_sha256"]
