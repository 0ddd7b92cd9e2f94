"""Signals become requests, and what torch was set to before a deterministic run comes back after it."""

import os
import signal
from typing import Any

import pytest
import torch

from bertkit.training.determinism import deterministic_algorithms
from bertkit.training.watch import catch_signals


def test_the_first_signal_is_a_request_and_the_second_acts_as_ever() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with catch_signals() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert (stop.name, seen) == ("SIGTERM", [])
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_comes_while_handlers_are_put_in_place_is_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    install, before = signal.signal, signal.getsignal(signal.SIGTERM)

    def install_and_kill(number: int, handler: Any) -> Any:
        previous = install(number, handler)
        if number == signal.SIGTERM and handler is not before:
            os.kill(os.getpid(), signal.SIGTERM)
        return previous

    monkeypatch.setattr(signal, "signal", install_and_kill)
    with catch_signals() as stop:
        assert stop.name == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("filled", [False, True])
def test_a_deterministic_run_leaves_torch_as_it_was(filled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = torch.utils.deterministic
    monkeypatch.setattr(settings, "fill_uninitialized_memory", filled)
    with deterministic_algorithms(True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not settings.fill_uninitialized_memory
    assert not torch.are_deterministic_algorithms_enabled()
    assert settings.fill_uninitialized_memory is filled
