"""The GPU kernels on this CPU: their own tests, in a process in which Triton interprets them."""

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IS_NEEDED = sys.platform == "linux" and platform.machine() == "x86_64"  # `make` installs it there


@pytest.mark.skipif(not IS_NEEDED and importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("file", ["test_kernels.py", "test_fast.py", "test_twins.py"])
def test_kernels_in_the_interpreter(file: str) -> None:
    # Without what pytest left there for its own: the number of a worker, options that choose other tests.
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-m", "gpu"]
    command = [sys.executable, "-m", "pytest", *options, f"tests/model/{file}"]
    environment = {**outside, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout.splitlines()[-1]
