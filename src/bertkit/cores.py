"""How many cores there are to share out, and what they can; every room may ask."""

import math
import os
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from functools import cache
from pathlib import Path

CONTROL_GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# How often a thread of OpenMP looks for the others before it sleeps. Left alone it looks until its slice of time is over, and
# holds the core that another needs: beside two other programs a step took sixty times as long as on a quiet machine.
SPINS = 5000


def num_cores() -> int:
    """Those that this process may use: a container is often given the time of a few, and shown all of the machine."""
    shown = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(shown, _time_given())))


def settle_threads(environment: MutableMapping[str, str]) -> None:
    """How PyTorch's threads behave, where the user has not said; it must not be loaded yet."""
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", str(SPINS))
    if _time_given() < math.inf:  # else PyTorch knows better: threads of one core are no cores
        environment.setdefault("OMP_NUM_THREADS", str(num_cores()))


def _time_given() -> float:
    """Of how many cores the control group of this process, and those that it lies in, may use the time."""
    return min(_limits(), default=math.inf)


def _limits() -> Iterator[float]:
    for folder in _groups():
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):  # of version 2 and 1
            with suppress(OSError, ValueError):
                quota, period = (int(one) for name in names for one in (folder / name).read_text().split())
                if quota > 0:
                    yield quota / period


def _groups() -> Iterator[Path]:
    """The folders of this process's group and of those around it."""
    with suppress(OSError):
        for line in OWN_GROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "cpu" in controllers.split(","):
                root = CONTROL_GROUPS / controllers
                inside = [part for part in Path(path).parts if part != "/"]
                yield from (root.joinpath(*inside[:depth]) for depth in range(len(inside), -1, -1))


@cache
def has_bfloat16() -> bool:
    """Whether they multiply bfloat16 by instructions of their own: without these float32 is the faster one."""
    import torch  # not at the top: --help does without

    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


@cache
def has_slow_mkl() -> bool:
    """Whether they are AMD's and have AVX-512, of which Intel's MKL, by which PyTorch multiplies float32, makes no use."""
    import torch

    is_asked = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return is_asked and torch.cpu._is_avx512_supported() and _vendor() == "AuthenticAMD"


def _vendor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return ""
    return next((line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")), "")
