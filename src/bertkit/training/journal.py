"""The run's journal: one JSON object a line for every step, evaluation and event, and the same for TensorBoard.

A checkpoint remembers how long the journal was; a resumed run cuts it there, so that no step appears twice.
"""

import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.training.loop import StepRecord
from bertkit.training.tensorboard_file import EventFile

NAME = "journal.jsonl"
AVERAGED = ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy", "grad_norm")


class Journal:
    """Appends to journal.jsonl; made by the first process alone. Nothing that comes is of an earlier `step`."""

    def __init__(self, folder: Path, position: int, *, tensorboard: bool = False, step: int = 0) -> None:
        self.path = Path(folder) / NAME
        with self._room():
            self._file = self.path.open("ab")
            if self._file.tell() < position:  # it was lost or cut: go on after its last whole line
                position = self.path.read_bytes().rfind(b"\n") + 1
            self._file.truncate(position)
            self._file.seek(position)
            self._board = EventFile(Path(folder) / "tensorboard", step) if tensorboard else None

    def write(self, kind: str, values: Mapping[str, Any]) -> None:
        """One line, at once readable by others; a full disk is one clear line."""
        line = json.dumps({"kind": kind, **values}, ensure_ascii=False) + "\n"
        with self._room():
            self._file.write(line.encode())
            self._file.flush()
            if self._board:
                self._board.write(_scalars(kind, values), int(values.get("step", 0)))

    def position(self) -> int:
        """Its length, synced to the disk."""
        with self._room():
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        """No more lines; what a full disk did not take was told of when it was written."""
        for file in (self._file, self._board):
            with suppress(OSError):
                file.close() if file else None

    @contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BertkitError(
                f"cannot write {self.path}: {error.strerror}; make room and start again with --resume"
            ) from error


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """Every whole line; the last may have been cut by a kill."""
    try:
        lines = (Path(folder) / NAME).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def mean_values(records: Sequence[StepRecord], flops: Sequence[float]) -> dict[str, Any]:
    """What the journal says of the steps that were collected together; steps count from 1, as steps done."""
    last, num = records[-1], len(records)
    tokens, seconds = sum(record.counts.num_tokens for record in records), sum(record.seconds for record in records)
    means = {name: sum(getattr(record, name) for record in records) / num for name in AVERAGED}
    return {
        "step": last.step + 1,
        **means,
        "learning_rate": last.learning_rate,
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / max(seconds, 1e-9),
        "flops_per_second": sum(flops) / max(seconds, 1e-9),
        "memory_bytes": memory_bytes(),
    }


def memory_bytes() -> int:
    """The most that this process has held: of the GPU where there is one, else of the machine."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _scalars(kind: str, values: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"{kind}/{name}": float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and name != "step"
    }
