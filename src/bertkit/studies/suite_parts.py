"""The parts of the suite as jobs: each is named, can be done in any process, and is stored when it is done.

parts/NAME.json, or parts/NAME/seed-N.json of a fine-tuned task, says that a part is finished. BLiMP is stored set by
set, since on a CPU it takes long.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.loading import load
from bertkit.studies.blimp import SetScore, read_blimp, score_set, summarise_blimp
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.held_out import measure_held_out
from bertkit.studies.jobs import Job, ShareDone
from bertkit.studies.pseudo_likelihood import TextScorer
from bertkit.studies.suite_config import BLIMP, HELD_OUT, UNTRAINED, WORD_IN_CONTEXT, Suite
from bertkit.studies.suite_run import TaskSource, finetune_once
from bertkit.studies.word_in_context import read_sense_pairs, sense_cosines, summarise_senses
from bertkit.training.precision import Precision, resolve_precision
from bertkit.training.world import choose_device

PARTS = "parts"
SPLITS = ("training", "dev", "test")
WEIGHTS = {HELD_OUT: 2.4e6, BLIMP: 25e6, WORD_IN_CONTEXT: 1e6}  # as bytes of training text times epochs
NO_MLM = "the checkpoint has no MLM head"


@dataclass(frozen=True)
class SuiteSpec:
    """What is measured, on what, and where results go; travels to worker processes."""

    model: str
    data: DataFolder
    suite: Suite
    out: Path
    limit: int | None = None
    device: str = "auto"
    lowercase: bool | None = None
    precision: Precision = "auto"

    def path(self, name: str, seed: int | None = None) -> Path:
        """Where a part's result is stored."""
        folder = self.out / PARTS
        return folder / f"{name}.json" if seed is None else folder / name / f"seed-{seed}.json"

    def open(self) -> Bert:
        """The checkpoint, opened once in a process."""
        return _open(self.model, self.device, self.lowercase, self.precision)


@lru_cache(maxsize=1)
def _open(model: str, device: str, lowercase: bool | None, precision: Precision) -> Bert:
    dtype = resolve_precision(precision, choose_device(device))
    # The torch engine: the checkpoint's weights, not what an export made of them.
    return load(model, device=device, lowercase=lowercase, dtype=dtype, engine="torch")


def make_jobs(spec: SuiteSpec, names: tuple[str, ...]) -> list[Job]:
    """The parts that are not finished yet."""
    found = []
    for name, seed in list_parts(spec.suite, names):
        if not spec.path(name, seed).is_file():
            said = name if seed is None else f"{name} seed {seed}"
            arguments = {"spec": spec, "name": name, "seed": seed}
            found.append(Job(said, "bertkit.studies.suite_parts:run_part", arguments, _weight(spec, name)))
    return found


def list_parts(suite: Suite, names: tuple[str, ...]) -> Iterator[tuple[str, int | None]]:
    """All parts, a fine-tuned task once for every seed."""
    for name in names:
        if name in UNTRAINED:
            yield name, None
        else:
            yield from ((name, seed) for seed in range(suite.seeds))


def _weight(spec: SuiteSpec, name: str) -> float:
    if name in UNTRAINED:
        return WEIGHTS[name]
    task = spec.suite.task(name)
    return float(task.epochs * sum(spec.data.task_file(file).stat().st_size for file in task.train))


def run_part(spec: SuiteSpec, name: str, seed: int | None, progress: ShareDone) -> dict[str, Any]:
    """Measure a part and store it."""
    if seed is not None:
        source = TaskSource(spec.model, spec.lowercase, spec.data, spec.suite.task(name), spec.limit)
        result = finetune_once(source, seed, spec.suite.dropout, spec.device, progress, spec.precision)
    else:
        result = {HELD_OUT: _held_out, BLIMP: _blimp, WORD_IN_CONTEXT: _word_in_context}[name](spec, progress)
        result["precision"] = str(next(spec.open().model.parameters()).dtype).removeprefix("torch.")
    result["device"] = name_device(choose_device(spec.device))
    write_json(spec.path(name, seed), result)
    return result


def name_device(device: torch.device) -> str:
    """As reports call it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _held_out(spec: SuiteSpec, progress: ShareDone) -> dict[str, Any]:
    bert = spec.open()
    if bert.model.mlm is None:
        return {"skipped": NO_MLM}
    store = spec.data.store(spec.suite.held_out.file, bert.tokenizer)
    return measure_held_out(bert, store, spec.suite.held_out, spec.limit, progress)


def _blimp(spec: SuiteSpec, progress: ShareDone) -> dict[str, Any]:
    bert = spec.open()
    if bert.model.mlm is None:
        return {"skipped": NO_MLM}
    scorer, aside = TextScorer(bert), spec.out / PARTS / f"{BLIMP}-so-far.json"
    done = {row["name"]: SetScore(**row) for row in read_json(aside)} if aside.is_file() else {}
    sets = list(read_blimp(spec.data.task_folder("blimp"), spec.limit))
    for number, pairs in enumerate(sets):
        if pairs.name not in done:
            done[pairs.name] = score_set(scorer, pairs)
            write_json(aside, [asdict(score) for score in done.values()])
        progress((number + 1) / len(sets))
    aside.unlink(missing_ok=True)
    return summarise_blimp(done[pairs.name] for pairs in sets)


def _word_in_context(spec: SuiteSpec, progress: ShareDone) -> dict[str, Any]:
    bert, folder = spec.open(), spec.data.task_folder("mcl-wic-en")
    pairs = {split: read_sense_pairs(folder, split, spec.limit) for split in SPLITS}
    total, seen = sum(map(len, pairs.values())), 0

    def count(num: int) -> None:
        nonlocal seen
        seen += num
        progress(seen / total)

    return summarise_senses({split: sense_cosines(bert, found, count) for split, found in pairs.items()}, pairs)


def digest_of(plain: Any, length: int = 10) -> str:
    """A short name of settings: other settings, another file."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:length]


def write_json(path: Path, value: Any) -> None:
    """Written aside and renamed, so that a file that is there is whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".writing-{path.name}")
        aside.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise BertkitError(f"cannot write {path}: {error.strerror or error}; choose another folder") from None


def read_json(path: Path) -> Any:
    """What was stored; a damaged file is named."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BertkitError(f"{path} cannot be read ({error}); remove it, and the part is measured anew") from None
