"""The commands of docs/pretraining.md work as they stand, one after the other."""

import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertkit.cli.main import app
from bertkit.training.estimate import timing as estimate_timing

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "pretraining.md"
NOT_HERE = ("torchrun", "bertkit pretrain recipes/paper")  # tested elsewhere; too large for a test


def commands() -> list[str]:
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("src", "recipes"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate_timing, "MOST_TIMED", 3)
    for command in commands():
        if command.startswith("bertkit "):
            if not command.startswith(NOT_HERE):
                result = CliRunner().invoke(app, shlex.split(command)[1:], catch_exceptions=False)
                assert result.exit_code == 0, f"{command}\n{result.output}"
        elif not command.startswith(NOT_HERE):
            subprocess.run(command, shell=True, check=True)
    assert (tmp_path / "build/guide/run/report.html").is_file()
    assert (tmp_path / "build/guide/continued/model/model.safetensors").is_file()


def test_every_kind_of_command_is_shown() -> None:
    shown = "\n".join(commands())
    for part in ("vocab train", "prepare", "doctor", "--estimate", "--resume", "--init", "torchrun", "fill-mask"):
        assert part in shown
