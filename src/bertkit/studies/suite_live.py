"""What a person sees of the suite while it goes: how many parts are done, which are under way, the time left."""

from collections.abc import Sequence
from typing import Any

from bertkit.studies.jobs import Job, TimeLeft, Watch
from bertkit.training.live import LiveLine, clock

MOST_SHOWN = 4
LARGE = 1000.0  # a score of this size has no decimals


class SuiteLine(LiveLine, Watch):
    """Watches jobs."""

    def __init__(self, jobs: Sequence[Job], *, shown: bool = True) -> None:
        super().__init__(shown=shown)
        self.jobs, self.time_left = jobs, TimeLeft(jobs)
        self.num_done = 0
        self._under_way: dict[str, float] = {}

    def on_progress(self, job: Job, share: float) -> None:
        """A job is this far."""
        self._under_way[job.name] = share
        self.time_left.update(job, share)
        self.show(self.line())

    def on_result(self, job: Job, result: Any) -> None:
        """A job is done: its score stays on the screen."""
        self._under_way.pop(job.name, None)
        self.time_left.update(job, 1.0)
        self.num_done += 1
        self.print(result_line(job.name, result))
        self.show(self.line())

    def line(self) -> str:
        """All that is under way."""
        running = sorted(self._under_way.items(), key=lambda item: -item[1])
        shown = ", ".join(f"{name} {share:.0%}" for name, share in running[:MOST_SHOWN])
        more = f" and {len(running) - MOST_SHOWN} more" if len(running) > MOST_SHOWN else ""
        seconds = self.time_left.seconds()
        left = "?" if seconds is None else clock(seconds)
        return f"{self.num_done}/{len(self.jobs)} parts done  {shown}{more}  {left} left"


def result_line(name: str, result: Any) -> str:
    """The main figure of a part."""
    if "skipped" in result:
        return f"{name}: not measured, {result['skipped']}"
    if "perplexity" in result:
        nsp = f", NSP accuracy {result['nsp_accuracy']:.1%}" if "nsp_accuracy" in result else ""
        return f"{name}: perplexity {result['perplexity']:.2f}, MLM accuracy {result['mlm_accuracy']:.1%}{nsp}"
    if "score" in result:
        digits = ",.0f" if (result["score"] or 0.0) >= LARGE else ".4f"
        score = "no score" if result["score"] is None else f"{result['metric']} {result['score']:{digits}}"
        return f"{name}: {score}" + (f" (collapsed: {result['collapsed']})" if result["collapsed"] else "")
    return f"{name}: accuracy {result['accuracy']:.1%}"
