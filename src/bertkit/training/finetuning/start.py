"""What fine-tuning starts from: a checkpoint's encoder and tokenizer, under a task's head."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig
from bertkit.model.formats import LoadReport, load_model, resolve
from bertkit.model.formats.config import read_config
from bertkit.model.formats.stored import locate
from bertkit.tasks.task import Task
from bertkit.tokenizer import LongPolicy, Tokenizer
from bertkit.tokenizer.fitting import Limit


@dataclass(frozen=True)
class Base:
    """A checkpoint to start from."""

    source: str
    path: Path
    encoder: BertConfig  # without heads
    labels: tuple[str, ...]  # that it knows already
    tokenizer: Tokenizer

    @property
    def folder(self) -> Path:
        """Where its other files lie."""
        return self.path if self.path.is_dir() else self.path.parent

    def limit(self, max_length: int, long: LongPolicy, stride: int = -1) -> Limit:
        """How long texts may be, and what happens to longer ones; a stride of -1 is a quarter of a window."""
        positions = self.encoder.max_positions
        if max_length > positions:
            raise BertkitError(f"max_length is {max_length}, but {self.source} has {positions} positions; lower it")
        return Limit(max_length or positions, long, None if stride < 0 else stride)


def open_base(source: str | Path, *, lowercase: bool | None = None) -> Base:
    """Find the checkpoint and read all but its weights."""
    if not str(source):
        raise BertkitError("no checkpoint is named: give --model or set BERTKIT_MODEL")
    path = resolve(str(source))
    said = read_config(locate(path).config)
    tokenizer = Tokenizer.load(path if path.is_dir() else path.parent, lowercase=lowercase)
    if tokenizer.vocab_size > said.encoder.vocab_size:
        sizes = f"{tokenizer.vocab_size} tokens but the model has rows for {said.encoder.vocab_size}"
        raise BertkitError(f"{source}: its tokenizer has {sizes}; they do not belong together")
    return Base(str(source), path, said.encoder, said.labels, tokenizer)


def start_model(base: Base, task: Task[Any, Any], seed: int) -> tuple[BertModel, LoadReport]:
    """The checkpoint under the task's head, which is drawn by the seed where it is new."""
    wanted = task.configure(base.encoder)
    torch.manual_seed(seed)
    model, report = load_model(base.path, heads=wanted.heads, labels=wanted.labels or None)
    if report.broken:
        raise BertkitError(f"{base.source} has values that are not finite: {report.broken[0]}; choose another")
    model.config = replace(model.config, problem=wanted.problem)
    return model, report


def start_lines(report: LoadReport) -> Sequence[str]:
    """What of the model is new and what was left behind, plainly."""
    lines = [f"encoder from {report.source}"]
    if report.new:
        lines.append(f"new, to be learned: {', '.join(report.new)}")
    if report.heads:
        lines.append(f"kept from the checkpoint: {', '.join(report.heads)}")
    left = sorted({_head_of(name) for name in report.ignored if not name.endswith("position_ids")})
    if left:
        lines.append(f"not needed for this task, left out: {', '.join(left)}")
    return lines


def _head_of(tensor: str) -> str:
    known = {"cls.predictions": "MLM head", "cls.seq_relationship": "NSP head", "classifier": "classifier"}
    known |= {"qa_outputs": "span head", "bert.pooler": "pooler", "pooler": "pooler"}
    return next((name for start, name in known.items() if tensor.startswith(start)), tensor)
