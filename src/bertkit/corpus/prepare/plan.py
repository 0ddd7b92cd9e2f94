"""What a store is made of, taken down before anything runs, so that a second start goes on only with the same.

What enters: input files, options, the tokenizer. What leaves: a Plan; equal plans give equal bytes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertkit.corpus.prepare.blocks import PrepareOptions
from bertkit.corpus.store import MANIFEST, Manifest, read_manifest
from bertkit.corpus.store_files import StoredFile, hash_file, plain_name, replace_text
from bertkit.errors import BertkitError
from bertkit.text.files import find_files
from bertkit.tokenizer.wordpiece import Tokenizer

WORK = "unfinished"
PLAN = "plan.json"


@dataclass(frozen=True)
class Plan:
    """Everything that decides the bytes of a store."""

    fingerprint: str
    vocab_size: int
    options: dict[str, Any]
    inputs: tuple[StoredFile, ...]

    @classmethod
    def make(cls, paths: Sequence[Path], tokenizer: Tokenizer, options: PrepareOptions, num_threads: int) -> Plan:
        """Take the checksums of the input files."""
        with ThreadPoolExecutor(num_threads) as threads:
            hashes = list(threads.map(hash_file, paths))
        inputs = tuple(
            StoredFile(plain_name(path), path.stat().st_size, sha) for path, sha in zip(paths, hashes, strict=True)
        )
        return cls(tokenizer.fingerprint, tokenizer.vocab_size, options.to_json(), inputs)

    @classmethod
    def of_manifest(cls, manifest: Manifest) -> Plan:
        """The plan of a finished store."""
        return cls(manifest.tokenizer_fingerprint, manifest.vocab_size, manifest.options, manifest.inputs)

    @classmethod
    def read(cls, path: Path) -> Plan:
        """The plan of an unfinished store."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**stored, "inputs": tuple(StoredFile(**file) for file in stored["inputs"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise BertkitError(f"{path} cannot be read ({error}); delete its folder and start again") from None

    def write(self, path: Path) -> None:
        """Put it down for a second start."""
        replace_text(path, json.dumps(asdict(self), indent=1))

    def manifest(self, shards: Sequence[Any]) -> Manifest:
        """The manifest of the store that this plan makes."""
        return Manifest(self.fingerprint, self.vocab_size, tuple(shards), self.inputs, self.options)

    def check_same(self, earlier: Plan, folder: Path) -> None:
        """Refuse to go on when something changed since the first start."""
        if self != earlier:
            raise BertkitError(
                f"{folder} was begun with {self._difference(earlier)}; give the same again, or choose another folder"
            )

    def _difference(self, earlier: Plan) -> str:
        if self.fingerprint != earlier.fingerprint:
            return f"another tokenizer ({earlier.vocab_size} tokens, {earlier.fingerprint[:8]})"
        for name, value in earlier.options.items():
            if self.options.get(name) != value:
                return f"the option {name}={value}"
        if [file.name for file in self.inputs] != [file.name for file in earlier.inputs]:
            return f"other input files or in another order ({', '.join(file.name for file in earlier.inputs[:3])}, ...)"
        changed = [new.name for new, old in zip(self.inputs, earlier.inputs, strict=True) if new != old]
        return f"another content of {', '.join(changed[:3])}"


def find_inputs(inputs: Iterable[str | Path], folder: Path) -> list[Path]:
    """The files to read; a store that lies in a folder of them, with its report and vocabulary, is none of them."""
    paths = find_files(inputs)
    if not (folder / MANIFEST).exists() and not (folder / WORK).exists():
        return paths
    return [path for path in paths if folder.resolve() not in path.resolve().parents]


def find_earlier(folder: Path) -> Plan | None:
    """The plan of the store that is in this folder, finished or not."""
    if (folder / MANIFEST).exists():
        return Plan.of_manifest(read_manifest(folder))
    if (folder / WORK / PLAN).exists():
        return Plan.read(folder / WORK / PLAN)
    if any(path.name != WORK for path in folder.iterdir()):
        raise BertkitError(f"{folder} holds other files and no store; choose an empty or new folder")
    return None


def sweep(folder: Path) -> None:
    """Remove what a killed process left half-written."""
    for place in (folder, folder / WORK):
        for path in place.glob("*.tmp"):
            path.unlink()


def remove_work(folder: Path) -> None:
    """Drop everything that only an unfinished store needs."""
    shutil.rmtree(folder / WORK, ignore_errors=True)
