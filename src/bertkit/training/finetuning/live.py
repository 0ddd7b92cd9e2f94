"""What a person sees of fine-tuning while it goes: a live line of steps, and lines that stay for scores and notes."""

from typing import Any

from bertkit.training.live import LiveLine, clock
from bertkit.training.stepping import Progress

LEFT_OUT = ("step", "epoch", "loss", "is_best", "metric", "score")


class TaskLine(LiveLine):
    """Watches a fine-tuning run."""

    def on_step(self, values: dict[str, Any], progress: Progress) -> None:
        """The last steps' figures."""
        self.show(task_step_line(values, progress))

    def on_evaluation(self, values: dict[str, Any]) -> None:
        """Development scores stay on the screen."""
        self.print(task_evaluation_line(values))

    def on_note(self, line: str) -> None:
        """So do notes."""
        self.print(line)


def task_step_line(values: dict[str, Any], progress: Progress) -> str:
    """Loss, speed, memory, time left."""
    total = progress.num_steps or 0
    left = clock((total - progress.step) * progress.seconds / max(1, progress.step))
    return (
        f"step {values['step']:,}/{total:,}  loss {values['loss']:.4f}  "
        f"{values['examples_per_second']:,.1f} examples/s  {values['memory_bytes'] / 2**30:.1f} GiB  {left} left"
    )


def task_evaluation_line(values: dict[str, Any]) -> str:
    """One look at the development set."""
    shown = ", ".join(f"{name} {value:.4f}" for name, value in values.items() if name not in LEFT_OUT)
    best = "  (best yet)" if values["is_best"] else ""
    return f"epoch {values['epoch']:.2f}, step {values['step']:,}: dev loss {values['loss']:.4f}, {shown}{best}"
