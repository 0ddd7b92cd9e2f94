"""What BERT is measured against: a simple model trained on the same examples, and the most frequent class."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertkit.tasks.baseline import AnswerBaseline, TextBaseline, WordBaseline
from bertkit.tasks.classification.task import ClassificationTask, ClassPrediction
from bertkit.tasks.metrics import SquadMetrics
from bertkit.tasks.tagging.decoding import TagPrediction
from bertkit.tasks.task import Task


@dataclass(frozen=True)
class Baselines:
    """Scores of those who know less."""

    name: str
    scores: dict[str, float]
    majority: dict[str, float]


def measure_baselines(task: Task[Any, Any], train: Sequence[Any], dev: Sequence[Any]) -> Baselines:
    """Train them, and score them as the task is scored."""
    if isinstance(task, ClassificationTask):
        texts = TextBaseline(train, task.problem)
        said = [ClassPrediction(label, None) for label in texts.predict(dev)]
        return Baselines(texts.name, _scores(task, dev, said), _majority(task, train, dev))
    if task.name == "tagging":
        words = WordBaseline(train)
        tagged = [TagPrediction(tags, ()) for tags in words.predict(dev)]
        return Baselines(words.name, _scores(task, dev, tagged), {})
    answers = AnswerBaseline(dev)
    metrics = SquadMetrics()
    for example, found in zip(dev, answers.predict(dev), strict=True):
        metrics.add([answer.text for answer in example.answers], found.text if found else None)
    return Baselines(answers.name, metrics.scores(), {})


def _majority(task: ClassificationTask, train: Sequence[Any], dev: Sequence[Any]) -> dict[str, float]:
    if task.problem != "single_label":
        return {}
    (most, _), *_ = Counter(str(example.label) for example in train).most_common(1)
    return _scores(task, dev, [ClassPrediction(most, None)] * len(dev))


def _scores(task: Task[Any, Any], dev: Sequence[Any], said: Sequence[Any]) -> dict[str, float]:
    scorer = task.scorer()
    for example, prediction in zip(dev, said, strict=True):
        scorer.add(example, prediction)
    return scorer.scores()
