"""What a fine-tuned model gets wrong: its worst mistakes with their texts, the confusion of classes, scores of each."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bertkit.model.bert import BertModel
from bertkit.pages.finetuning import ClassRow, Mark, Mistake
from bertkit.tasks.metrics import ClassMetrics, normalize_answer
from bertkit.tasks.predicting import Chunk, predict_chunks
from bertkit.tasks.reading.conll import is_entity_tag
from bertkit.tasks.reading.examples import QuestionExample, TagExample, TextExample
from bertkit.tasks.tagging.decoding import located
from bertkit.tasks.tagging.labels import find_entities, parse_tag
from bertkit.tasks.task import Scored, Task

MOST_MISTAKES = 30
FAR_OFF = 0.0  # a number is always off; the worst are shown


@dataclass(frozen=True)
class Findings:
    """One more look at the development set, for the report."""

    scores: dict[str, float]
    mistakes: list[Mistake] = field(default_factory=list)  # the worst first
    num_mistakes: int = 0
    confusion: list[list[int]] = field(default_factory=list)
    classes: list[ClassRow] = field(default_factory=list)


def find_mistakes(task: Task[Any, Any], model: BertModel, chunks: Iterable[Chunk[Any]]) -> Findings:
    """Score all examples once more, and keep the mistakes that cost most."""
    scorer = task.scorer()
    worst: list[tuple[float, int, Scored[Any, Any]]] = []
    num = 0
    for number, one in enumerate(predict_chunks(task, model, chunks)):
        scorer.add(one.example, one.prediction)
        if is_wrong(one):
            num += 1
            heapq.heappush(worst, (one.loss or 0.0, -number, one))
            if len(worst) > MOST_MISTAKES:
                heapq.heappop(worst)
    metrics: Any = getattr(scorer, "metrics", None)
    return Findings(
        scores=scorer.scores(),
        mistakes=[make_mistake(one) for *_, one in sorted(worst, key=lambda row: row[:2], reverse=True)],
        num_mistakes=num,
        confusion=metrics.confusion.tolist() if isinstance(metrics, ClassMetrics) else [],
        classes=[ClassRow(**row.__dict__) for row in metrics.per_class()] if hasattr(metrics, "per_class") else [],
    )


def is_wrong(one: Scored[Any, Any]) -> bool:
    """Whether the prediction is not the truth."""
    example, prediction = one.example, one.prediction
    if isinstance(example, TagExample):
        return example.tags is not None and tuple(example.tags) != tuple(prediction.tags)
    if isinstance(example, QuestionExample):
        golds = {normalize_answer(answer.text) for answer in example.answers} or {""}
        return normalize_answer(prediction.text) not in golds
    if isinstance(prediction.label, float):
        return abs(prediction.label - float(example.label)) > FAR_OFF
    if isinstance(prediction.label, tuple):
        return set(prediction.label) != set(_several(example.label))
    return str(example.label) != str(prediction.label)


def make_mistake(one: Scored[Any, Any]) -> Mistake:
    """As the page shows it."""
    example, prediction, loss = one.example, one.prediction, one.loss
    if isinstance(example, TextExample):
        return Mistake(
            text=example.text,
            pair=example.pair or "",
            gold=_shown(example.label),
            predicted=_shown(prediction.label),
            place=_place(example.line),
            confidence=prediction.confidence,
            loss=loss,
        )
    if isinstance(example, QuestionExample):
        return _wrong_answer(example, prediction, loss)
    return Mistake(
        text=example.text or " ".join(example.words),
        gold=" ".join(example.tags or ()),
        predicted=" ".join(prediction.tags),
        place=_place(example.line),
        loss=loss,
        gold_marks=true_marks(example),
        predicted_marks=[Mark(entity.start, entity.end, entity.kind) for entity in prediction.entities],
    )


def true_marks(example: TagExample) -> list[Mark]:
    """The entities that a sentence really has, in its characters."""
    tags = example.tags or ()
    if not all(map(is_entity_tag, tags)):
        return []  # parts of speech, say
    _, places = located(example)
    spans = find_entities([parse_tag(tag) for tag in tags])
    return [Mark(places[span.first][0], places[span.last][1], span.kind) for span in spans]


def _wrong_answer(example: QuestionExample, prediction: Any, loss: float | None) -> Mistake:
    gold = example.answers[0] if example.answers else None
    return Mistake(
        text=example.context,
        question=example.question,
        gold=gold.text if gold else "no answer",
        predicted=prediction.text or "no answer",
        place=example.id or _place(example.line),
        confidence=prediction.confidence,
        loss=loss,
        gold_marks=[Mark(gold.start, gold.start + len(gold.text))] if gold else [],
        predicted_marks=[Mark(prediction.start, prediction.end)] if prediction.text else [],
    )


def _several(label: Any) -> tuple[str, ...]:
    return label if isinstance(label, tuple) else (str(label),)


def _shown(label: Any) -> str:
    if isinstance(label, tuple):
        return ", ".join(label) or "none"
    return f"{label:.3f}" if isinstance(label, float) else str(label)


def _place(line: int | None) -> str:
    return "" if line is None else f"line {line}"
