"""Setting up: pip's warnings do not bury what `make demo` says, and what goes wrong is shown whole."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PIP = """#!/bin/sh
echo "pip $*" >> "{log}"
case "$*" in *"--quiet --quiet"*) ;; *) echo "WARNING: Location 'x' is ignored" >&2 ;; esac
[ -e "{broken}" ] || exit 0
echo "ERROR: No matching distribution found" >&2
exit 1
"""


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment whose pip only says what it was asked."""
    pip = tmp_path / "venv" / "bin" / "pip"
    pip.parent.mkdir(parents=True)
    pip.write_text(PIP.format(log=tmp_path / "log", broken=tmp_path / "broken"))
    pip.chmod(0o755)
    return tmp_path / "venv"


def make(venv: Path) -> subprocess.CompletedProcess[str]:
    target = str(venv / ".ready")
    command = ["make", "--silent", "-C", str(ROOT), f"VENV={venv}", "PYTHON=true", target]
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=outside)


def test_warnings_of_pip_are_not_shown(venv: Path) -> None:
    done = make(venv)
    assert (done.returncode, done.stderr) == (0, "")
    assert (venv / ".ready").exists()
    assert len((venv.parent / "log").read_text().splitlines()) == 2


def test_what_goes_wrong_is_shown_with_all_that_pip_has_to_say(venv: Path) -> None:
    (venv.parent / "broken").touch()
    done = make(venv)
    assert done.returncode != 0
    assert "ERROR: No matching distribution found" in done.stderr
    assert "WARNING: Location" in done.stderr
    assert not (venv / ".ready").exists()
