"""Whose results a folder holds: one model, one set of settings, one state of the data; suite.json says which.

Seeds and parts may be added later, also on another device, and the data may lie elsewhere, packed or not.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.studies.suite_config import BLIMP, HELD_OUT, WORD_IN_CONTEXT
from bertkit.studies.suite_parts import SPLITS, SuiteSpec, read_json, write_json
from bertkit.text.files import PACKED, READ_ERRORS, open_bytes
from bertkit.training.toml_text import to_plain

IDENTITY = "suite.json"
DATA = "data"


def check_identity(spec: SuiteSpec, described: dict[str, Any], names: Sequence[str]) -> None:
    """Refuse a folder that holds results of something else; write down what is measured there now."""
    suite = to_plain(spec.suite)
    plain: dict[str, Any] = {
        "weights": described["weights"],
        "lowercase": described["lowercase"],
        "limit": spec.limit,
        "dropout": suite["dropout"],
        "held_out": suite["held_out"],
        **{f"settings of {task['name']}": task for task in suite["tasks"]},
    }
    path = spec.out / IDENTITY
    before = read_json(path) if path.is_file() else plain
    for key in sorted({*before, *plain} - {DATA}):
        if before.get(key) != plain.get(key):
            what = "another model" if key == "weights" else f"{key} = {before.get(key)}, not {plain.get(key)}"
            raise BertkitError(f"{spec.out} holds results with {what}; give the same to go on, or another folder")
    known, now = before.get(DATA, {}), stamp_data(spec, names)
    for name, stamp in now.items():
        if known.get(name, stamp) != stamp:
            raise BertkitError(
                f"{spec.out} holds results of {name} on other data than {spec.data.root} has; give the same to go on, "
                "or another folder"
            )
    write_json(path, {**plain, DATA: {**known, **now}})


def stamp_data(spec: SuiteSpec, names: Sequence[str]) -> dict[str, str]:
    """A hash of each part's files, by their names and what is in them."""
    found = {}
    for name in names:
        with suppress(BertkitError, *READ_ERRORS):  # the part itself says what is missing or damaged, if it needs it
            found[name] = _hash(part_files(spec, name))
    return found


def _hash(files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(f"{file.stem if file.suffix in PACKED else file.name}\n".encode())
        with open_bytes(file) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def part_files(spec: SuiteSpec, name: str) -> list[Path]:
    """What a part reads."""
    if name == HELD_OUT:
        return [spec.data.corpus_file(spec.suite.held_out.file)]
    if name == BLIMP:
        return sorted(spec.data.task_folder("blimp").glob("*.jsonl"))
    if name == WORD_IN_CONTEXT:
        kinds = ("data", "gold")
        return [spec.data.task_file(f"mcl-wic-en/{split}.{kind}.json") for split in SPLITS for kind in kinds]
    task = spec.suite.task(name)
    return [spec.data.task_file(file) for file in (*task.train, task.test)]
