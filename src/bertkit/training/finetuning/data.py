"""From files or examples to what runs train on: read, split where there is one file, checked for duplicates, encoded."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import BertkitError
from bertkit.tasks.predicting import Chunk, encode_chunks
from bertkit.tasks.reading.examples import QuestionExample, TagExample, TextExample
from bertkit.tasks.reading.splits import count_classes, find_duplicates, split_examples
from bertkit.tasks.registry import ReadExamples, read_examples, task_for, task_name
from bertkit.tasks.task import Item, Task
from bertkit.text.counted import agree, counted
from bertkit.tokenizer.fitting import Limit
from bertkit.training.finetuning.config import FinetuneConfig
from bertkit.training.finetuning.records import TaskData
from bertkit.training.finetuning.start import Base

Source = str | Path | Sequence[Any]
DEV_SHARE = 0.1
MOST_LINES = 20  # named in a note
MOST_CLASSES = 10  # likewise
UNEVEN = 10  # times as many examples of one class as of another, and it is worth a word


@dataclass(frozen=True)
class Prepared:
    """Everything that all runs of one call share."""

    base: Base
    task: Task[Any, Any]
    limit: Limit
    data: TaskData = field(repr=False)
    train: Sequence[Any] = field(repr=False)
    dev: Sequence[Any] = field(repr=False)
    sources: tuple[str, str]  # names of the files of both
    num_left_out: tuple[int, int]  # bad rows of both, which the notes name
    notes: tuple[str, ...]  # what to say of them: columns taken, the split, duplicates
    fingerprint: str  # of the encoded examples


def prepare(
    name: str, base: Base, train: Source, dev: Source | None, columns: Mapping[str, Any], config: FinetuneConfig
) -> Prepared:
    """Read and encode the examples of a task."""
    kind = task_name(name)
    options = {**columns, **({"problem": "regression"} if name == "regression" else {})}
    read, bad = _read(kind, train, options), 0
    examples, notes = read.examples, list(read.lines)
    if dev is None:
        split = split_examples(examples, share=DEV_SHARE, seed=config.seed)
        examples, held = split.train, split.dev
        notes.append(split.said)
    task = task_for(kind, examples, known=base.labels, class_weights=config.class_weights)
    if dev is not None:
        # A label means in both files what it means in the first.
        head = task.configure(base.encoder)
        same = {"problem": head.problem, "labels": head.labels or None} if kind == "classification" else {}
        other = _read(kind, dev, {**options, **same})
        held, bad = other.examples, other.num_left_out
        notes += [*other.lines, *find_duplicates({"train": examples, "dev": held}).lines()]
    notes += class_lines(examples, held, config.class_weights)
    limit = base.limit(config.max_length, config.long, config.stride)
    encoded = (list(encode_chunks(task, part, base.tokenizer, limit)) for part in (examples, held))
    data = TaskData(task, *encoded)
    notes += [*long_lines("train", data.train), *long_lines("dev", data.dev)]
    sources = (source_name(train), source_name(train if dev is None else dev))
    counts = (read.num_left_out, bad)
    return Prepared(base, task, limit, data, examples, held, sources, counts, tuple(notes), fingerprint_of(data))


def class_lines(train: Sequence[Any], dev: Sequence[Any], weights: str) -> list[str]:
    """How often each class is trained on, and which of them no score will speak of."""
    counts, held = (count_classes(getattr(one, "label", None) for one in part) for part in (train, dev))
    if not counts:
        return []
    shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:MOST_CLASSES])
    lines = [f"classes trained on: {shown}{', ...' if len(counts) > MOST_CLASSES else ''}"]
    if not weights and max(counts.values()) >= UNEVEN * min(counts.values()):
        lines.append("rare classes count for little: --set class_weights=balanced, --set metric=macro_f1 change that")
    if missing := [repr(name) for name in counts if name not in held]:
        named = ", ".join(missing[:MOST_CLASSES]) + (", ..." if len(missing) > MOST_CLASSES else "")
        lines.append(f"no development example has {named}, so the scores say nothing of that; give more, or --dev")
    return lines


def _read(name: str, source: Source, options: Mapping[str, Any]) -> ReadExamples:
    if isinstance(source, str | Path):
        return read_examples(name, source, **options)
    examples = list(source)
    for one in examples:
        if not isinstance(one, TextExample | TagExample | QuestionExample):
            raise BertkitError(
                f"an example is {type(one).__name__}; give a file, or TextExample, TagExample or QuestionExample of "
                "bertkit.tasks.reading.examples"
            )
    return ReadExamples(examples, [])


def source_name(source: Source) -> str:
    """What a report calls it."""
    return Path(source).name if isinstance(source, str | Path) else "given in memory"


@dataclass(frozen=True)
class LongExamples:
    """Which examples were too long for one sequence: their indices."""

    windowed: tuple[int, ...]
    cut: tuple[int, ...]


def find_long(chunk: Chunk[Any]) -> LongExamples:
    """The examples of a chunk that have several windows, or that lost tokens or words."""
    windowed, cut = [], []
    for index, group in groupby(chunk.items, key=lambda item: item.example):
        items = list(group)
        windowed += [index] if len(items) > 1 else []
        cut += [index] if _is_cut(chunk.examples[index], items) else []
    return LongExamples(tuple(windowed), tuple(cut))


def _is_cut(example: Any, items: Sequence[Item]) -> bool:
    """Whether the items of an example leave some of it out, by what their task noted of them."""
    note = items[0].note
    if isinstance(note, tuple):  # tagging: the words that each window reads
        return sum(len(item.note) for item in items) < len(example.words)
    return bool(getattr(note, "num_cut", note))  # answering, classification: tokens


def long_lines(name: str, chunks: Sequence[Chunk[Any]]) -> list[str]:
    """What happened to long texts, with the lines of their file."""
    lines = []
    for kind, what in (("windowed", "read in several windows"), ("cut", "cut at the end")):
        found = [chunk.examples[index] for chunk in chunks for index in getattr(find_long(chunk), kind)]
        places = [str(example.line) for example in found if example.line is not None][:MOST_LINES]
        more = " ..." if len(found) > len(places) and places else ""
        where = f": {agree(len(places), 'line', 'lines')} {', '.join(places)}{more}" if places else ""
        said = counted(len(found), "text was", "texts were")
        lines += [f"{name}: {said} too long for the model and {what}{where}"] if found else []
    return lines


def fingerprint_of(data: TaskData) -> str:
    """Equal only for the same tokens and targets in the same order."""
    digest = hashlib.blake2b(digest_size=8)
    for chunk in (*data.train, *data.dev):
        for item in chunk.items:
            digest.update(np.array([item.example, *item.ids], dtype=np.int32).tobytes())
            digest.update(np.ascontiguousarray(item.targets).tobytes())
    return digest.hexdigest()
