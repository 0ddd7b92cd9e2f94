"""What the cores of this machine can is told as its system tells it."""

from pathlib import Path

import pytest
import torch

from bertkit import cores


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
