"""The run's journal: one JSON object a line for every step, evaluation and event, and TensorBoard where it is there.

A checkpoint remembers how long the journal was; a resumed run cuts it there, so that no step appears twice.
"""

import json
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.training.loop import StepRecord

NAME = "journal.jsonl"
AVERAGED = ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy", "grad_norm")


class Journal:
    """Appends to journal.jsonl; made by the first process alone."""

    def __init__(self, folder: Path, position: int, *, tensorboard: bool = False) -> None:
        self.path = Path(folder) / NAME
        self._file = self.path.open("ab")
        self._file.truncate(position)
        self._file.seek(position)
        self._board = _open_tensorboard(Path(folder) / "tensorboard") if tensorboard else None

    def write(self, kind: str, values: Mapping[str, Any]) -> None:
        """One line, at once readable by others; a full disk is one clear line."""
        line = json.dumps({"kind": kind, **values}, ensure_ascii=False) + "\n"
        try:
            self._file.write(line.encode())
            self._file.flush()
        except OSError as error:
            raise BertkitError(
                f"cannot write {self.path}: {error.strerror}; make room and start again with --resume"
            ) from error
        board = self._board
        for name, value in values.items() if board else ():
            if board and isinstance(value, int | float) and name != "step":
                board.add_scalar(f"{kind}/{name}", value, values.get("step", 0))

    def position(self) -> int:
        """Its length, synced to the disk."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """No more lines."""
        self._file.close()
        if self._board:
            self._board.close()


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


def _open_tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        raise BertkitError(
            "TensorBoard is not installed; pip install tensorboard, or set tensorboard = false"
        ) from None
    return SummaryWriter(str(folder))  # type: ignore[no-untyped-call,unused-ignore]
