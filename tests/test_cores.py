"""What the cores of this machine can is told as its system tells it."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bertkit import cores


def make_groups(folder: Path, monkeypatch: pytest.MonkeyPatch, own: str, limits: dict[str, str]) -> None:
    """A system whose control groups have these files."""
    (folder / "own").write_text(own, encoding="utf-8")
    for name, text in limits.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(cores, "CONTROL_GROUPS", folder)
    monkeypatch.setattr(cores, "OWN_GROUPS", folder / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),  # a container
        ("0::/jobs/one\n", {"jobs/cpu.max": "150000 100000\n", "jobs/one/cpu.max": "max 100000\n"}, 2),
        ("0::/jobs/one\n", {"jobs/cpu.max": "800000 100000\n", "jobs/one/cpu.max": "50000 100000\n"}, 1),
        (
            "4:memory:/x\n3:cpu,cpuacct:/docker/7f\n",  # version 1, whose path is the host's
            {"cpu,cpuacct/cpu.cfs_quota_us": "400000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            4,
        ),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 64),
        ("0::/\n", {"cpu.max": "nonsense\n"}, 64),
        ("", {}, 64),
    ],
)
def test_a_containers_share_of_the_cores_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, limits: dict[str, str], expected: int
) -> None:
    make_groups(tmp_path, monkeypatch, own, limits)
    assert cores.num_cores() == expected
    environment: dict[str, str] = {}
    cores.settle_threads(environment)
    assert environment.get("OMP_NUM_THREADS") == (None if math.isinf(cores._time_given()) else str(expected))
    assert environment["GOMP_SPINCOUNT"] == str(cores.SPINS)


def test_what_the_user_says_of_threads_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_groups(tmp_path, monkeypatch, "0::/\n", {"cpu.max": "200000 100000"})
    for said in (
        {"OMP_NUM_THREADS": "7", "GOMP_SPINCOUNT": "9"},
        {"OMP_NUM_THREADS": "7", "OMP_WAIT_POLICY": "active"},
    ):
        environment = dict(said)
        cores.settle_threads(environment)
        assert environment == said


def test_the_command_settles_threads_before_torch_is_there() -> None:
    code = (
        "import os, sys\nfrom bertkit.cli import main\n"
        "main.app = lambda **_: print('torch' in sys.modules, os.environ['GOMP_SPINCOUNT'])\nmain.main()"
    )
    outside = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run([sys.executable, "-c", code], env=outside, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", str(cores.SPINS)]


@pytest.mark.parametrize(("vendor", "is_slow"), [("AuthenticAMD", True), ("GenuineIntel", False), ("", False)])
def test_mkl_is_slow_on_amd_with_avx512(vendor: str, is_slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_vendor", lambda: vendor)
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: True)
    assert cores.has_slow_mkl.__wrapped__() is is_slow
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: False)
    assert not cores.has_slow_mkl.__wrapped__()


def test_instructions_are_those_that_the_system_lists() -> None:
    listed = Path("/proc/cpuinfo")
    if not listed.is_file() or "flags" not in (text := listed.read_text(encoding="utf-8")):
        pytest.skip("this system does not list what its CPU can do")
    assert cores.has_bfloat16() == ("avx512_bf16" in text or "amx_tile" in text)
    assert cores._vendor() in text
