"""One task model that ships: the mini encoder fine-tuned, scored, stored in eight bits, and scored again as stored.

What enters: a checkpoint, a model's part of ship.toml, the data folder. What leaves: a folder, and its scores before
and after the rounding, on the same examples and both in float32.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.loading import load
from bertkit.model.bert import BertModel
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.suite_config import FinetunedTask
from bertkit.tasks.predicting import Chunk, predict_chunks
from bertkit.tasks.reading.examples import TextExample
from bertkit.tasks.registry import StoredTask, read_examples, task_name
from bertkit.tasks.task import Task
from bertkit.training.finetuning.data import Prepared, prepare
from bertkit.training.finetuning.records import RunSummary
from bertkit.training.finetuning.run import FinetuneRun
from bertkit.training.finetuning.start import open_base
from bertkit.training.world import choose_device

SAID = {"classification": "label", "tagging": "tags", "answering": "text"}  # what a prediction says, by task


@dataclass(frozen=True)
class TaskModel:
    """A model that ships: how it is trained, and what its card says beside the figures."""

    name: str
    setting: FinetunedTask
    use: str
    data: tuple[str, ...]
    limits: tuple[str, ...]
    labels: dict[str, str] = field(default_factory=dict)  # the file's names of classes: ours


@dataclass(frozen=True)
class Measured:
    """Scores on the development set, and what was said of each example."""

    scores: dict[str, float]
    said: Sequence[Any]


@dataclass(frozen=True)
class MadeTask:
    """What the card says of one task model."""

    num_train: int
    num_dev: int
    summary: RunSummary
    before: Measured
    after: Measured

    @property
    def agreement(self) -> float:
        """The share of development examples of which both say the same."""
        pairs = zip(self.before.said, self.after.said, strict=True)
        return sum(old == new for old, new in pairs) / max(1, len(self.before.said))


def make_task_model(
    model: TaskModel, mini: str, data: DataFolder, folder: Path, *, dropout: float, device: str, limit: int | None
) -> MadeTask:
    """Fine-tune, store in this folder, and measure what is stored."""
    given = prepare_examples(model, mini, data, limit)
    config = model.setting.config(0, given.base.encoder.max_positions, device, dropout=dropout)
    run = FinetuneRun(given.base, given.data, config, choose_device(device))
    summary = run.run()
    if summary.collapsed and limit is None:
        raise BertkitError(f"{model.name} learned nothing: {summary.collapsed}; change its rate in ship.toml")
    task = given.task.tuned(summary.scores)
    before = measure(task, run.model, given.data.dev)
    save_int8(run.model, given, task, folder)
    stored = load(folder, device=run.world.device.type, dtype="float32")
    after = measure(task, stored.model, given.data.dev)
    return MadeTask(given.data.num_train, len(given.dev), summary, before, after)


def prepare_examples(model: TaskModel, mini: str, data: DataFolder, limit: int | None) -> Prepared:
    """Its examples, with the names of classes that people read."""
    setting = model.setting
    base = open_base(mini)
    train = [example for name in setting.train for example in read(model, data.task_file(name))[:limit]]
    dev = read(model, data.task_file(setting.test))[:limit]
    return prepare(setting.task, base, train, dev, {}, setting.config(0, base.encoder.max_positions))


def read(model: TaskModel, file: Path) -> list[Any]:
    """The examples of a file."""
    examples = read_examples(task_name(model.setting.task), file, **model.setting.columns).examples
    return [rename(example, model.labels) for example in examples] if model.labels else examples


def rename(example: TextExample, labels: dict[str, str]) -> TextExample:
    """The same example under the class's new name."""
    if str(example.label) not in labels:
        raise BertkitError(f"line {example.line} has the label {example.label!r}; ship.toml names {', '.join(labels)}")
    return replace(example, label=labels[str(example.label)])


def measure(task: Task[Any, Any], model: BertModel, chunks: Iterable[Chunk[Any]]) -> Measured:
    """Scores of a model, and its answers."""
    scorer, said = task.scorer(), []
    for one in predict_chunks(task, model, chunks):
        scorer.add(one.example, one.prediction)
        said.append(getattr(one.prediction, SAID[task.name]))
    return Measured(scorer.scores(), said)


def save_int8(model: BertModel, given: Prepared, task: Task[Any, Any], folder: Path) -> None:
    """Weights in eight bits, config, tokenizer and task.json."""
    stored = StoredTask(task.name, task.settings(), given.limit.max_length, given.limit.long)
    Bert(model, given.base.tokenizer, stored=stored).save(folder, layout="int8")
