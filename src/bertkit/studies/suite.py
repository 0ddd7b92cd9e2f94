"""`bertkit evaluate --suite`: one checkpoint, measured on everything, with one command that may be killed and repeated.

What enters: any checkpoint that bertkit loads, and the data folder. What leaves: a folder with a result of every part,
results.json, report.md and report.html. Finished parts are never measured twice; on a GPU several processes share it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bertkit.cores import num_cores
from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.loading import open_checkpoint
from bertkit.model.config import num_parameters
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.jobs import run_jobs
from bertkit.studies.suite_config import read_suite
from bertkit.studies.suite_identity import check_identity
from bertkit.studies.suite_live import SuiteLine
from bertkit.studies.suite_parts import SuiteSpec, make_jobs
from bertkit.studies.suite_report import write_reports
from bertkit.studies.suite_results import SuiteResults, collect_results
from bertkit.training.checkpoints import fingerprint
from bertkit.training.precision import Precision, check_precision
from bertkit.training.watch import catch_signals

SMALL, MIDDLE = 60e6, 150e6  # parameters: how many runs share a GPU
BYTES_A_RUN = 4 * 2**30  # of GPU memory at least, beside four copies of the weights


@dataclass(frozen=True)
class SuiteOutcome:
    """What was measured, and whether it was stopped before its end."""

    results: SuiteResults
    folder: Path
    stopped_by: str | None = None


def run_suite(
    model: str | Path,
    *,
    out: str | Path,
    data: str | Path | None = None,
    tasks: Sequence[str] = (),
    seeds: int | None = None,
    limit: int | None = None,
    recipe: str | Path | None = None,
    device: str = "auto",
    workers: int = 0,
    lowercase: bool | None = None,
    precision: Precision = "auto",
    cache: str | Path | None = None,
    shown: bool = True,
) -> SuiteOutcome:
    """Measure a checkpoint on the parts named, or on all; the same call goes on where it was stopped."""
    if limit is not None and limit < 2:
        raise BertkitError(f"limit is {limit}; give at least 2 examples of each set")
    check_precision(precision)
    suite = read_suite(recipe, seeds=seeds)
    names = suite.choose(tasks)
    spec = SuiteSpec(str(model), DataFolder.open(data, cache), suite, Path(out), limit, device, lowercase, precision)
    bert = spec.open()
    described = describe(bert, spec)
    check_identity(spec, described, names)
    jobs = make_jobs(spec, names)
    number = workers or choose_workers(bert, len(jobs))
    with catch_signals() as stop, SuiteLine(jobs, shown=shown) as watch:
        run_jobs(jobs, number, watch, lambda: stop.name is not None)
    results = collect_results(spec, described, names)
    write_reports(spec.out, results)
    return SuiteOutcome(results, spec.out, stop.name)


def describe(bert: Bert, spec: SuiteSpec) -> dict[str, Any]:
    """The model, in plain figures."""
    config = bert.config
    stored = open_checkpoint(spec.model, dtype=None, lowercase=spec.lowercase)  # the same on every device
    return {
        "name": name_of(spec.model),
        "weights": fingerprint(stored.model.named_parameters()),
        "num_parameters": num_parameters(config),
        "num_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "vocab_size": bert.tokenizer.vocab_size,
        "lowercase": bert.tokenizer.lowercase,
        "heads": list(config.heads),
        "torch": torch.__version__,
    }


def name_of(model: str) -> str:
    """The folder's name; of a run's folder `model`, the run's."""
    path = Path(model)
    return path.parent.name or path.name if path.name == "model" else path.name or model


def choose_workers(bert: Bert, num_jobs: int) -> int:
    """How many processes share the device: one on a CPU, several small models on a GPU."""
    if bert.device.type != "cuda":
        return 1
    size = num_parameters(bert.config)
    wanted = 8 if size < SMALL else 4 if size < MIDDLE else 2
    free, _ = torch.cuda.mem_get_info(bert.device)
    room = int(free // (BYTES_A_RUN + 4 * 4 * size))
    cores = num_cores()
    return max(1, min(wanted, room, cores - 1, num_jobs))
