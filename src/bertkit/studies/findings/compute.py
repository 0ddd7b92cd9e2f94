"""`compute`: what each size costs to train and to use, on this machine, beside what the paper's training took.

In: sizes. Out: figures of cost.py for every size, measured several times, one after another so that nothing disturbs
them. Parts of several devices in one folder stand side by side in one result.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.model.config import PRESETS, preset
from bertkit.studies.findings.cost import UseConfig, counted, measure_cost
from bertkit.studies.jobs import Job
from bertkit.studies.study.request import StudyOutcome, StudyRequest
from bertkit.studies.study.result import Arm, Measure, Score, StudyResult, TextTable
from bertkit.studies.study.wording import about_machine, missing_notes, result_of
from bertkit.studies.study.work import work_through
from bertkit.studies.suite_parts import digest_of, read_json, write_json
from bertkit.training.toml_text import to_dataclass, to_plain
from bertkit.training.world import choose_device

FOLDER = "compute"
YEAR = 24 * 365  # hours
BUSY = 1.4  # programs a core, ours among them: another that runs beside it makes 1.5 of two cores
CHIP_HOURS = {"base": 16 * 96, "large": 64 * 96}  # section A.2: 4 and 16 Cloud TPUs of 4 chips, 4 days
MEASURED = {  # figure of a part: name, unit, whether lower is better, decimals
    "hours": ("hours of the paper's 1 M steps", "h", True, 1),
    "tokens_per_second": ("training", "tokens/s", False, 0),
    "texts_per_second": ("inference", "texts/s", False, 1),
    "milliseconds": ("one text at a time", "ms", True, 1),
}


@dataclass(frozen=True)
class ComputeOptions:
    """Settings of this study."""

    sizes: tuple[str, ...] = tuple(PRESETS)
    use: UseConfig = field(default_factory=UseConfig)

    def __post_init__(self) -> None:
        if not self.sizes:
            raise BertkitError(f"options.sizes names no size; choose from {', '.join(PRESETS)}")
        for size in self.sizes:
            preset(size)


@dataclass(frozen=True)
class CostPart:
    """One size, measured once on one device."""

    size: str
    repeat: int
    path: Path
    use: UseConfig
    device: str

    @property
    def said(self) -> str:
        """For people."""
        return f"{self.size}, time {self.repeat + 1}"

    def job(self) -> Job:
        """Measure it: steps are timed for some seconds, and large ones take longer to set up."""
        gpu = choose_device(self.device).type == "cuda"
        weight = (10.0 if gpu else 30.0) * (1.0 + preset(self.size).num_layers / 24)
        return Job(self.said, "bertkit.studies.findings.compute:measure_part", {"part": self}, weight)


def run_compute_study(request: StudyRequest) -> StudyOutcome:
    """Measure what is missing on this device, and collect what there is of all devices."""
    options = to_dataclass(ComputeOptions, request.scale.options, "options.")
    parts = _parts(request, options)
    left = [part for part in parts if not part.path.is_file()]
    stopped = work_through(request, (), [part.job() for part in left], (1, 1))
    missing = tuple(part.said for part in parts if not part.path.is_file())
    result = collect_compute(request, options, missing)
    result.write(request.folder)
    return StudyOutcome(result, request.folder, missing, stopped)


def _parts(request: StudyRequest, options: ComputeOptions) -> list[CostPart]:
    folder = _folder(request, options)
    return [
        CostPart(size, repeat, folder / f"{size}-{repeat}.json", options.use, request.device)
        for size in options.sizes
        for repeat in range(request.scale.seeds)
    ]


def _folder(request: StudyRequest, options: ComputeOptions) -> Path:
    """Of this device's parts, measured as the options say."""
    return request.parts / FOLDER / digest_of([to_plain(options.use), device_name(request.device)])


def device_name(device: str) -> str:
    """Of the hardware; another number of threads is another device."""
    gpu = choose_device(device).type == "cuda"
    return torch.cuda.get_device_name() if gpu else f"CPU, {torch.get_num_threads()} threads"


def cpu_load() -> float:
    """Of all programs, this one among them, as a share of the cores; 0 where the system does not say."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0


def measure_part(part: CostPart, progress: Callable[[float], None]) -> dict[str, Any]:
    """Measure and store."""
    started, load = time.monotonic(), cpu_load() if choose_device(part.device).type == "cpu" else 0.0
    found = measure_cost(part.size, part.use, part.device, progress)
    found |= {"load": max(load, cpu_load()) if load else 0.0}
    found |= {"device": device_name(part.device), "repeat": part.repeat, "seconds": time.monotonic() - started}
    found |= {"score": found["hours"], "metric": "training hours", "collapsed": ""}  # what the live line shows
    write_json(part.path, found)
    return found


def collect_compute(request: StudyRequest, options: ComputeOptions, missing: Sequence[str] = ()) -> StudyResult:
    """What is stored so far, of every device."""
    stored = [found for found in stored_parts(request, options) if found["size"] in options.sizes]
    devices = sorted({found["device"] for found in stored})
    measures = {(name, device): _measure(name, device, devices) for device in devices for name in MEASURED}
    scores = [
        Score(found["size"], measures[name, found["device"]].name, found["repeat"], found[name])
        for found in stored
        for name in MEASURED
    ]
    notes = [*scaled_notes(stored), *busy_notes(stored), *missing_notes(missing)]
    return result_of(
        request,
        arms=[Arm(size, _label(size), {}) for size in options.sizes],
        baseline="base" if "base" in options.sizes else options.sizes[0],
        measures=list(measures.values()),
        scores=scores,
        tables=[counts_table(options.sizes, stored), *(beside_paper(stored, device) for device in devices)],
        notes=(*request.scale.notes, *request.recipe.notes, *notes),
        agreement=agreement(stored, devices),
        about=about_machine(request, sum(found["seconds"] for found in stored)),
    )


def stored_parts(request: StudyRequest, options: ComputeOptions) -> list[dict[str, Any]]:
    """This device's parts as the options say, and of every other device those that were written last."""
    own, here = _folder(request, options), device_name(request.device)
    by_device: dict[str, list[dict[str, Any]]] = {}
    for folder in sorted((request.parts / FOLDER).glob("*"), key=lambda folder: folder.stat().st_mtime):
        found = [read_json(path) for path in sorted(folder.glob("[!.]*.json"))]
        if found and (folder == own or found[0]["device"] != here):
            by_device[found[0]["device"]] = found
    return [one for found in by_device.values() for one in found]


def _label(size: str) -> str:
    layers, hidden, _ = PRESETS[size]
    return f"{size} ({layers} x {hidden})"


def _measure(name: str, device: str, devices: Sequence[str]) -> Measure:
    said, unit, lower, decimals = MEASURED[name]
    return Measure(said if len(devices) == 1 else f"{said}, {device}", unit, lower, decimals)


def agreement(stored: Sequence[dict[str, Any]], devices: Sequence[str]) -> tuple[str, ...]:
    """There is nothing to agree on: another machine, and what the paper's hours would be there."""
    found = []
    for device in devices:
        for size, chips in CHIP_HOURS.items():
            hours = [one["hours"] for one in stored if (one["size"], one["device"]) == (size, device)]
            if hours:
                here = median(hours)
                days = f"{here / 24:,.0f} days" if here < YEAR else f"{here / YEAR:,.0f} years"
                found.append(f"{size}: {chips:,} TPU chip-hours then, {days} on {device}")
    if not found:
        return ()
    head = "Cost is of a machine, so there is nothing to agree on. The paper's training of"
    return (f"{head} {'; '.join(found)}.",)


def busy_notes(stored: Sequence[dict[str, Any]]) -> list[str]:
    """Said where other programs held a CPU up while it was measured."""
    loads = [one["load"] for one in stored if one.get("load", 0.0) > BUSY]
    if not loads:
        return []
    who = f"{len(loads)} of {len(stored)} measurements"
    return [f"The machine was busy during {who} (load of up to {max(loads):.1f} times its cores): they are too slow."]


def scaled_notes(stored: Sequence[dict[str, Any]]) -> list[str]:
    """Which sizes were timed by parts of a step, a line a device."""
    found: dict[str, dict[str, None]] = {}
    for one in stored:
        if any("scaled by FLOPs" in note for note in one["notes"]):
            found.setdefault(one["device"], {})[one["size"]] = None
    return [
        f"{device}: {', '.join(sizes)} timed on parts of a step and scaled by FLOPs; such hours may be 30 % off."
        for device, sizes in found.items()
    ]


def counts_table(sizes: Sequence[str], stored: Sequence[dict[str, Any]]) -> TextTable:
    """What the shape decides, and the memory of a training step as counted (and measured, on a GPU)."""
    rows = []
    for size in sizes:
        figures = counted(preset(size))
        peaks = [found["measured_memory_bytes"] for found in stored if found["size"] == size]
        peak = max((one for one in peaks if one is not None), default=None)
        memory = max((found["memory_bytes"] for found in stored if found["size"] == size), default=None)
        rows.append(
            (
                _label(size),
                f"{figures['parameters'] / 1e6:,.1f} M",
                f"{figures['training_flops_per_token'] / 1e6:,.1f} M",
                f"{figures['inference_flops_per_token'] / 1e6:,.1f} M",
                f"{figures['weights_bytes'] / 1e6:,.0f} MB",
                "–" if memory is None else f"{memory / 1e9:,.1f} GB",
                "–" if peak is None else f"{peak / 1e9:,.1f} GB",
            )
        )
    head = ("size", "#parameters", "#training FLOPs a token", "#inference FLOPs a token", "#weights in float32")
    return TextTable("Counted", (*head, "#memory of a training step, counted", "#measured"), tuple(rows))


def beside_paper(stored: Sequence[dict[str, Any]], device: str) -> TextTable:
    """Hours here beside the paper's chip-hours; hours are of one device, whatever its worth."""
    rows = []
    for size in PRESETS:
        hours = [found["hours"] for found in stored if (found["size"], found["device"]) == (size, device)]
        if hours:
            middle, chips = median(hours), CHIP_HOURS.get(size)
            published = "–" if chips is None else f"{chips:,} chip-hours"
            ratio = "–" if chips is None else f"{chips / middle:,.2g} chips"
            rows.append((size, published, f"{middle:,.1f} h ({middle / 24:,.1f} days)", ratio))
    columns = ("size", "#the paper's training", f"#the same steps on {device}", "#this device is worth")
    return TextTable(f"Beside the paper: {device}", columns, tuple(rows))
