"""Answers out of texts: the span of a context that answers a question, by a checkpoint with a span head.

In: questions, each with its context. Out: one AnswerPrediction each, context[start:end] == text. Contexts beyond the
model's positions are read in windows, unless the caller or fine-tuning chose an error or truncation.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from bertkit.inference.classification import limit_of
from bertkit.model.bert import BertModel
from bertkit.tasks.answering.spans import AnswerPrediction
from bertkit.tasks.answering.task import answering_of
from bertkit.tasks.predicting import predict_examples
from bertkit.tasks.reading.examples import QuestionExample
from bertkit.tasks.registry import StoredTask
from bertkit.tokenizer import LongPolicy, Tokenizer

QUESTIONS_AT_ONCE = 256


def answer_questions(
    model: BertModel,
    tokenizer: Tokenizer,
    pairs: Iterable[tuple[str, str]],
    *,
    stored: StoredTask | None = None,
    long: LongPolicy | None = None,
    stride: int | None = None,
    max_tokens: int | None = None,
    **options: Any,
) -> Iterator[AnswerPrediction]:
    """The answer of every (question, context); options as in AnswerOptions, the threshold as it was stored."""
    task = answering_of(model.config, stored.settings if stored else {})
    task = replace(task, options=replace(task.options, **options))
    own = limit_of(model, stored, long)
    limit = own if stride is None else replace(own, stride=stride)
    examples = (QuestionExample("", question, context) for question, context in pairs)
    for scored in predict_examples(
        task, model, tokenizer, examples, limit, max_tokens=max_tokens, chunk_size=QUESTIONS_AT_ONCE
    ):
        yield scored.prediction
