"""The tasks by name: how their files are read, which task a set of examples calls for, which one a checkpoint is of.

Also task.json, what a fine-tuned folder remembers beside config.json: the task, its thresholds, and how long texts
were treated.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.model.config import BertConfig
from bertkit.tasks.answering.task import answering_for, answering_of
from bertkit.tasks.classification.task import classification_for, classification_of
from bertkit.tasks.reading.conll import TagOptions, read_conll
from bertkit.tasks.reading.squad import read_squad
from bertkit.tasks.reading.texts import TextOptions, read_texts
from bertkit.tasks.tagging.task import tagging_for, tagging_of
from bertkit.tasks.task import Task
from bertkit.tokenizer import LongPolicy
from bertkit.tokenizer.fitting import Limit

NAME = "task.json"
TASKS = ("classification", "tagging", "answering")
ALIASES = {"question-answering": "answering", "qa": "answering", "ner": "tagging", "regression": "classification"}
HEADS = {"classifier": "classification", "tagger": "tagging", "span": "answering"}


@dataclass(frozen=True)
class ReadExamples:
    """The examples of a file, and what to tell people of them."""

    examples: list[Any]
    lines: list[str]
    num_left_out: int = 0  # bad rows, named in the lines


@dataclass(frozen=True)
class StoredTask:
    """What task.json says."""

    task: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    max_length: int | None = None
    long: LongPolicy = "window"
    stride: int | None = None  # tokens that windows share; None: a quarter of them

    @property
    def limit(self) -> Limit:
        """How long texts were treated."""
        return Limit(self.max_length, self.long, self.stride)


def task_name(name: str) -> str:
    """The task that people mean."""
    found = ALIASES.get(name, name)
    if found not in TASKS:
        raise BertkitError(f"no task is named {name!r}; choose one of {', '.join(TASKS)}")
    return found


def parse_columns(assignments: Iterable[str]) -> dict[str, Any]:
    """`text=review`, `label=stars`, `skip_bad=true` as given after --column: options of a reader."""
    options: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals or not key or not value:
            raise BertkitError(f"--column takes role=name, such as text=review, not {assignment!r}")
        options[key] = {"true": True, "false": False}.get(value, value)
    return options


def reader_options(assignments: Iterable[str] | None, skip_bad: bool) -> dict[str, Any]:
    """What --column and --skip-bad ask of a reader."""
    return {**parse_columns(assignments or ()), **({"skip_bad": True} if skip_bad else {})}


def tag_options(options: Mapping[str, Any]) -> TagOptions:
    """Those of CoNLL files, where columns are numbers."""
    numbered: dict[str, Any] = {
        key: int(v) if isinstance(v, str) and _is_number(v) else v for key, v in options.items()
    }
    _refuse_unknown("tagging", numbered, TagOptions)
    return TagOptions(**numbered)


def text_options(options: Mapping[str, Any], **fixed: Any) -> TextOptions:
    """Those of tables of texts."""
    _refuse_unknown("classification", options, TextOptions)
    return TextOptions(**options, **fixed)


def _refuse_unknown(name: str, options: Mapping[str, Any], known: type[Any]) -> None:
    names = [option.name for option in fields(known)]
    if unknown := options.keys() - set(names):
        raise BertkitError(f"files for {name} have no option {min(unknown)!r}; choose from {', '.join(names)}")


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def read_examples(
    name: str, path: str | Path, *, labels: Sequence[str] | None = None, labelled: bool = True, **options: Any
) -> ReadExamples:
    """A task's file; options are those of its reader, such as text="review", label="stars" or skip_bad=True."""
    try:
        if name == "classification":
            texts = read_texts(path, text_options(options, labels=labels, labelled=labelled))
            return ReadExamples(texts.examples, texts.lines(), texts.problems.count)
        if name == "tagging":
            tags = read_conll(path, tag_options(options))
            return ReadExamples(tags.examples, tags.lines(), tags.problems.count)
        questions = read_squad(path, **options)
        return ReadExamples(questions.examples, questions.lines(), questions.problems.count)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        wrong = str(error).rpartition("argument ")[2]
        raise BertkitError(f"files for {name} have no option {wrong}; see the help") from None


def task_for(
    name: str, examples: Sequence[Any], *, known: Sequence[str] = (), class_weights: str = "", problem: Any = None
) -> Task[Any, Any]:
    """The task that these examples call for; `known` are labels that the checkpoint has already."""
    if name == "classification":
        balanced: Any = class_weights or None
        return classification_for(examples, known=known, class_weights=balanced, problem=problem)
    if class_weights:
        raise BertkitError(f"class weights are for classification, not for {name}; leave them out")
    return tagging_for(examples, known=known) if name == "tagging" else answering_for(examples)


def task_of(config: BertConfig, stored: StoredTask | None = None) -> Task[Any, Any]:
    """The task that a checkpoint was trained for."""
    settings = stored.settings if stored else {}
    name = next((task for head, task in HEADS.items() if head in config.heads), None)
    if name is None:
        raise BertkitError("this checkpoint has no task's head; fine-tune it first (`bertkit finetune`)")
    if name == "classification":
        return classification_of(config, settings)
    return tagging_of(config, settings) if name == "tagging" else answering_of(config, settings)


def write_task(folder: Path, task: Task[Any, Any], limit: Limit) -> None:
    """Remember the task beside its weights."""
    plain = {"task": task.name, "settings": task.settings(), **asdict(limit)}
    aside = folder / f".writing-{NAME}"
    aside.write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    aside.replace(folder / NAME)


def read_task(folder: Path) -> StoredTask:
    """What a folder remembers; of another tool's checkpoint, nothing."""
    try:
        plain = json.loads((folder / NAME).read_text(encoding="utf-8"))
        return StoredTask(plain["task"], plain["settings"], plain["max_length"], plain["long"], plain.get("stride"))
    except (FileNotFoundError, NotADirectoryError):
        return StoredTask()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BertkitError(f"{folder / NAME} cannot be read ({error}); remove it or save the model anew") from None
