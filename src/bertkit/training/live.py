"""What a person sees of a run while it goes: one live line on a terminal, a line now and then in a log file."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from bertkit.training.loop import Progress

LOG_SECONDS = 30.0  # between lines where there is no terminal


class LiveLine:
    """Watches a run; standard error only, so that --json stays clean."""

    def __init__(self, *, shown: bool = True) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False, markup=False)
        self._live = Live(console=self._console, transient=True) if shown and self._console.is_terminal else None
        self._shown, self._printed = shown, 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def on_step(self, values: dict[str, Any], progress: Progress) -> None:
        """The last steps' figures."""
        self.show(step_line(values, progress))

    def show(self, line: str) -> None:
        """In place of the last one; without a terminal, only now and then."""
        if self._live:
            from rich.text import Text

            self._live.update(Text(line))
        elif self._shown and time.monotonic() - self._printed > LOG_SECONDS:
            self._printed = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def on_evaluation(self, values: dict[str, Any]) -> None:
        """Held-out figures stay on the screen."""
        self.print(evaluation_line(values))

    def print(self, line: str) -> None:
        """A line that stays."""
        if self._shown:
            self._console.print(line, soft_wrap=True)


def step_line(values: dict[str, Any], progress: Progress) -> str:
    """Loss, accuracies, speed, memory, time left."""
    total = "?" if progress.num_steps is None else f"{progress.num_steps:,}"
    left = "?"
    if progress.num_steps is not None and progress.step:
        left = clock((progress.num_steps - progress.step) * progress.seconds / progress.step)
    return (
        f"step {values['step']:,}/{total}  loss {values['loss']:.3f}  MLM {values['mlm_accuracy']:.1%}  "
        f"NSP {values['nsp_accuracy']:.1%}  {values['tokens_per_second']:,.0f} tokens/s  "
        f"{values['flops_per_second'] / 1e12:.3g} TFLOP/s  {values['memory_bytes'] / 2**30:.1f} GiB  {left} left"
    )


def evaluation_line(values: dict[str, Any]) -> str:
    """One measurement on held-out text."""
    old = f"; former text: MLM loss {values['old_mlm_loss']:.3f}" if "old_mlm_loss" in values else ""
    return (
        f"step {values['step']:,}: held-out MLM loss {values['mlm_loss']:.3f} (perplexity {values['perplexity']:.1f}), "
        f"MLM accuracy {values['mlm_accuracy']:.1%}, NSP accuracy {values['nsp_accuracy']:.1%}{old}"
    )


def clock(seconds: float) -> str:
    """1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
