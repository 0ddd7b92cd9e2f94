"""What BERT is measured against: a simple model trained on the same examples, and always saying the most frequent thing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertkit.tasks.answering.scoring import THRESHOLD, AnswerScorer
from bertkit.tasks.answering.spans import AnswerPrediction
from bertkit.tasks.answering.task import AnsweringTask
from bertkit.tasks.baseline import AnswerBaseline, TextBaseline, WordBaseline
from bertkit.tasks.classification.task import ClassificationTask, ClassPrediction
from bertkit.tasks.reading.examples import Answer, QuestionExample
from bertkit.tasks.tagging.decoding import TagPrediction
from bertkit.tasks.task import Scorer, Task

ANSWERED = 0.0  # the threshold of one who always answers


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
        return Baselines(texts.name, _scores(task.scorer(), dev, said), _most_frequent_class(task, train, dev))
    if isinstance(task, AnsweringTask):
        return _answering(task, dev)
    words = WordBaseline(train)
    tagged = [TagPrediction(tags, ()) for tags in words.predict(dev)]
    same = [TagPrediction((words.other,) * len(example.words), ()) for example in dev]
    return Baselines(words.name, _scores(task.scorer(), dev, tagged), _scores(task.scorer(), dev, same))


def _answering(task: AnsweringTask, dev: Sequence[QuestionExample]) -> Baselines:
    """Words beside those of the question; where there may be no answer, also never answering at all."""
    answers, may_be_none = AnswerBaseline(dev), task.options.no_answer_threshold is not None
    threshold = ANSWERED if may_be_none else None
    found = _scores(AnswerScorer(threshold), dev, [_as_prediction(answer) for answer in answers.predict(dev)])
    silent = _scores(AnswerScorer(threshold), dev, [_as_prediction(None)] * len(dev)) if may_be_none else {}
    return Baselines(answers.name, found, silent)


def _as_prediction(answer: Answer | None) -> AnswerPrediction:
    if answer is None:
        return AnswerPrediction("", 0, 0, 0.0, 0.0, 1.0, ())
    return AnswerPrediction(answer.text, answer.start, answer.start + len(answer.text), 0.0, 0.0, 1.0, ())


def _most_frequent_class(task: ClassificationTask, train: Sequence[Any], dev: Sequence[Any]) -> dict[str, float]:
    if task.problem != "single_label":
        return {}
    (most, _), *_ = Counter(str(example.label) for example in train).most_common(1)
    return _scores(task.scorer(), dev, [ClassPrediction(most, None)] * len(dev))


def _scores(scorer: Scorer[Any, Any], dev: Sequence[Any], said: Sequence[Any]) -> dict[str, float]:
    for example, prediction in zip(dev, said, strict=True):
        scorer.add(example, prediction)
    return {name: score for name, score in scorer.scores().items() if name != THRESHOLD}
