"""All that the suite has measured of one model: parts as they were stored, medians over seeds, the five tasks' average."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, stdev
from typing import Any

from bertkit.studies.published import FIVE
from bertkit.studies.suite_config import UNTRAINED, Suite
from bertkit.studies.suite_parts import SuiteSpec, list_parts, read_json


@dataclass(frozen=True)
class TaskSummary:
    """A fine-tuned task over its seeds; scores as the metrics give them, in 0 to 1. A run that diverged scores 0."""

    name: str
    metric: str
    scored_on: str
    scores: tuple[float, ...]  # by seed
    collapsed: tuple[int, ...]  # seeds that learned nothing; they count all the same
    others: Mapping[str, float]  # medians of the task's other scores
    seconds: float  # of training, all seeds

    @property
    def median(self) -> float:
        """Over the seeds."""
        return median(self.scores)

    @property
    def deviation(self) -> float:
        """Sample standard deviation; 0 of one run."""
        return stdev(self.scores) if len(self.scores) > 1 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return {**asdict(self), "median": self.median, "deviation": self.deviation}


@dataclass(frozen=True)
class SuiteResults:
    """The report's content."""

    model: Mapping[str, Any]  # name and sizes
    suite: Suite
    untrained: Mapping[str, Any]  # held-out, BLiMP, word-in-context: as far as they are done
    tasks: Sequence[TaskSummary]
    runs: Mapping[str, Sequence[Mapping[str, Any]]]  # every run of every task
    limit: int | None
    missing: Sequence[str]  # parts that were asked for and are not done

    @property
    def average(self) -> float | None:
        """The mean of the five tasks' medians, times 100; None unless all five are there."""
        medians = {task.name: task.median for task in self.tasks}
        return 100 * fmean(medians[name] for name in FIVE) if set(FIVE) <= set(medians) else None

    def notes(self) -> list[str]:
        """What a reader must know."""
        lines = [f"Measured on {place}: {', '.join(names)}." for place, names in self._places().items()]
        if self.limit is not None:
            lines.append(
                f"Cut to {self.limit:,} examples of each set (--limit): quick, and not comparable with whole sets."
            )
        lines += [
            f"{name}: not measured, {part['skipped']}." for name, part in self.untrained.items() if "skipped" in part
        ]
        for task in self.tasks:
            if task.collapsed:
                seeds = ", ".join(map(str, task.collapsed))
                lines.append(f"{task.name}: learned nothing with seed {seeds}; counted as it scored.")
        lines += [f"Not done yet: {name}." for name in self.missing]
        return lines

    def _places(self) -> dict[str, list[str]]:
        """Names of parts by where they were measured; the parts of one report may come from several machines."""
        found: dict[str, list[str]] = {}
        measured = {name: [part] for name, part in self.untrained.items() if "skipped" not in part}
        for name, parts in {**self.runs, **measured}.items():
            for place in dict.fromkeys(f"{part['device']} in {part['precision']}" for part in parts):
                found.setdefault(place, []).append(name)
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return {
            "model": dict(self.model),
            "average_of_five": self.average,
            "limit": self.limit,
            "notes": self.notes(),
            **{name: dict(part) for name, part in self.untrained.items()},
            "tasks": {task.name: task.to_json() for task in self.tasks},
            "runs": {name: [dict(run) for run in runs] for name, runs in self.runs.items()},
        }


def collect_results(spec: SuiteSpec, model: Mapping[str, Any], names: tuple[str, ...]) -> SuiteResults:
    """What is stored, by this call or an earlier one; of the parts asked for, also what is missing."""
    untrained: dict[str, Any] = {}
    runs: dict[str, list[Any]] = {}
    missing = []
    for name, seed in list_parts(spec.suite, spec.suite.names):
        path = spec.path(name, seed)
        if not path.is_file():
            missing += [name if seed is None else f"{name} seed {seed}"] if name in names else []
        elif name in UNTRAINED:
            untrained[name] = read_json(path)
        else:
            runs.setdefault(name, []).append(read_json(path))
    tasks = [summarise_task(spec.suite, name, found) for name, found in runs.items()]
    return SuiteResults(model, spec.suite, untrained, tasks, runs, spec.limit, missing)


def summarise_task(suite: Suite, name: str, runs: Sequence[Mapping[str, Any]]) -> TaskSummary:
    """One task over its seeds."""
    task = suite.task(name)
    names = dict.fromkeys(other for run in runs for other in run["scores"] if other != task.metric)
    return TaskSummary(
        name=name,
        metric=task.metric,
        scored_on=task.scored_on,
        scores=tuple(run["score"] or 0.0 for run in runs),
        collapsed=tuple(run["seed"] for run in runs if run["collapsed"]),
        others={other: median(run["scores"].get(other, 0.0) for run in runs) for other in names},
        seconds=sum(run.get("seconds", 0.0) for run in runs),
    )
