"""What a pre-trained run is worth: tasks fine-tuned on its weights, or a tagger trained on its frozen features.

In: a run, a moment of it, a task. Out: scores in parts/RUN/, by the product's own fine-tuning and feature heads. The
seed of a measurement is that of its run, so that seeds are whole repetitions: other text order, other weights.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.inference.features.make import FeatureOptions, make_features
from bertkit.inference.loading import load
from bertkit.model.feature_heads import BiLstmHead
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.jobs import Job
from bertkit.studies.study.config import TaskUse
from bertkit.studies.study.result import Measure
from bertkit.studies.study.runs import PlannedRun
from bertkit.studies.suite_config import FinetunedTask
from bertkit.studies.suite_parts import digest_of, read_json, write_json
from bertkit.studies.suite_run import TaskSource, finetune_once
from bertkit.tasks.features import FeatureTable
from bertkit.tasks.reading.examples import TagExample
from bertkit.tasks.registry import read_examples
from bertkit.training.heads.tagger import TaggerTraining, score_tagger, train_tagger
from bertkit.training.toml_text import to_plain
from bertkit.training.world import choose_device

NAMES = {"f1": "F1", "matthews": "Matthews", "spearman": "Spearman", "accuracy": "accuracy"}


@dataclass(frozen=True)
class Measurement:
    """One task on one moment of one run."""

    run: PlannedRun
    look: float
    use: TaskUse
    task: FinetunedTask
    data: DataFolder
    dropout: float
    device: str

    @property
    def measure(self) -> Measure:
        """What the score is called in the result."""
        return Measure(measure_name(self.use, self.task), "points")

    @property
    def path(self) -> Path:
        """Where its scores are stored; other settings are another file."""
        plain = [to_plain(self.use), to_plain(self.task), self.dropout, choose_device(self.device).type]
        name = f"{self.task.name}-{self.use.way}-{digest_of(plain, 8)}-at-{round(self.look * self.run.steps)}.json"
        return self.run.parts / name

    @property
    def is_done(self) -> bool:
        """Whether it is stored."""
        return self.path.is_file()

    @property
    def score(self) -> float:
        """Times 100; a run that learned nothing, or diverged, counts as it scored."""
        return 100.0 * (read_json(self.path)["score"] or 0.0)

    def job(self, weight: float) -> Job:
        """Measure it."""
        moment = "" if self.look == 1.0 else f" after {self.look:g} of the run"
        said = f"{self.measure.name}, {self.run.arm}{moment}, seed {self.run.seed}"
        return Job(said, "bertkit.studies.study.measuring:measure", {"measurement": self}, weight)


def measure_name(use: TaskUse, task: FinetunedTask) -> str:
    """SST-2 accuracy; CoNLL-2003 F1, frozen features."""
    plain = f"{task.name} {NAMES.get(task.metric, task.metric)}"
    return plain if use.way == "finetune" else f"{plain}, frozen features"


def measure(measurement: Measurement, progress: Callable[[float], None]) -> dict[str, Any]:
    """Measure and store."""
    ways = {"finetune": fine_tuned, "features": with_features}
    try:
        found = ways[measurement.use.way](measurement, progress)
    except torch.OutOfMemoryError:
        raise BertkitError("out of GPU memory beside the other processes; start again with fewer --workers") from None
    write_json(measurement.path, found)
    return found


def fine_tuned(measurement: Measurement, progress: Callable[[float], None]) -> dict[str, Any]:
    """One fine-tuning run of the suite's kind; the last step's scores."""
    model, run = str(measurement.run.weights(measurement.look)), measurement.run
    source = TaskSource(model, None, measurement.data, measurement.task, measurement.use.limit)
    return finetune_once(source, run.seed, measurement.dropout, measurement.device, progress)


def with_features(measurement: Measurement, progress: Callable[[float], None]) -> dict[str, Any]:
    """A BiLSTM on the frozen encoder's vectors of words (section 5.3 of the paper); the last epoch's scores."""
    started, task, use = time.monotonic(), measurement.task, measurement.use
    device = choose_device(measurement.device)
    model = str(measurement.run.weights(measurement.look))
    bert = load(model, device=str(device))

    def make(names: tuple[str, ...]) -> FeatureTable:
        examples = [example for name in names for example in _tagged(measurement, name)]
        return make_features(bert, examples, FeatureOptions(layer=use.layer, per="word"), model)

    with warnings.catch_warnings(record=True) as caught:  # such as sentences read in windows: noted, not printed
        warnings.simplefilter("always")
        train, test = make(task.train), make((task.test,))
    settings = tagger_training(measurement)

    def note(epoch: int, loss: float, scores: dict[str, float]) -> None:
        progress(0.99 * epoch / task.epochs)

    trained = train_tagger(train, None, settings, note, device=str(device))
    assert isinstance(trained.head, BiLstmHead)
    scores = score_tagger(trained.head.to(device), test, train)
    notes = list(dict.fromkeys(str(one.message) for one in caught))
    plain = {"task": task.name, "seed": measurement.run.seed, "metric": task.metric, "collapsed": ""}
    return {
        **plain,
        "notes": notes,
        "scores": scores,
        "score": scores[task.metric],
        "seconds": time.monotonic() - started,
    }


def tagger_training(measurement: Measurement) -> TaggerTraining:
    """Of the BiLSTM; the task's rate is that of fine-tuning, so only one that the study gives is taken."""
    task, use, seed = measurement.task, measurement.use, measurement.run.seed
    found = TaggerTraining(epochs=task.epochs, batch_size=task.batch_size, hidden_size=use.hidden_size, seed=seed)
    return found if use.learning_rate is None else replace(found, learning_rate=use.learning_rate)


def _tagged(measurement: Measurement, name: str) -> list[TagExample]:
    found = read_examples("tagging", measurement.data.task_file(name), **measurement.task.columns)
    examples: list[TagExample] = list(found.examples[: measurement.use.limit])
    return examples
