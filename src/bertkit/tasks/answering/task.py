"""Question answering (sections 4.2 and 4.3 of the paper): a start vector S and an end vector E find a span.

In: questions with contexts, and answers where they are known. Out: items (windows of long contexts), the loss, and the
best legal span of each context or, where that is allowed, no answer. A window without the answer points to [CLS].
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bertkit.errors import BertkitError, LongTextWarning
from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig
from bertkit.tasks.answering.context import AnswerWindow, ContextTokens, Framed, frame, read_contexts, summarise
from bertkit.tasks.answering.loss import ENDS, STARTS, span_loss_sum
from bertkit.tasks.answering.scoring import THRESHOLD, AnswerScorer
from bertkit.tasks.answering.spans import AnswerOptions, AnswerPrediction, predict_answer
from bertkit.tasks.reading.examples import QuestionExample
from bertkit.tasks.task import IGNORED, Item, TaskBatch
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.fitting import Limit


@dataclass(frozen=True)
class AnsweringTask:
    """The span of a context that answers a question."""

    options: AnswerOptions = field(default_factory=AnswerOptions)
    name: str = "answering"

    @property
    def metric(self) -> str:
        """F1; at the best threshold where there may be no answer, because that is the one that will be stored."""
        return "f1" if self.options.no_answer_threshold is None else "best_f1"

    def configure(self, config: BertConfig) -> BertConfig:
        """The encoder's config with the start and end vectors."""
        if config.num_segments < 2:
            raise BertkitError(
                "this model has one segment (type_vocab_size 1), so it cannot take questions with contexts"
            )
        return config.with_heads(["span"], labels=())

    def encode(self, examples: Sequence[QuestionExample], tokenizer: Tokenizer, limit: Limit) -> list[Item]:
        """One item a question, or several where the context is long."""
        contexts = read_contexts([example.context for example in examples], tokenizer)
        questions = tokenizer.encode_ids([example.question for example in examples])
        most = self.options.max_question_tokens
        framed = [
            frame(question, contexts[example.context], limit, most, name_of(example))
            for question, example in zip(questions, examples, strict=True)
        ]
        if said := summarise(framed, limit):
            warnings.warn(said, LongTextWarning, stacklevel=2)
        items = [
            _item(one, window, answer_tokens(example, window), index, tokenizer)
            for index, (example, one) in enumerate(zip(examples, framed, strict=True))
            for window in one.windows
        ]
        _say_lost(examples, contexts)
        return items

    def logits(self, model: BertModel, batch: TaskBatch) -> Tensor:
        """S.T and E.T of every token: [R, 2]."""
        # The softmax is over all tokens, so nothing is saved by reading some rows of the last layer alone.
        return model.span_logits(model.encoder(batch.inputs)).index_select(0, batch.rows)

    def loss_sum(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """The mean of the start's and the end's cross-entropy, summed over sequences."""
        segments = batch.inputs.sequence_of_token.index_select(0, batch.rows)
        return span_loss_sum(logits, batch.targets, segments, len(batch.inputs))

    def num_targets(self, item: Item) -> int:
        """One for a sequence whose start and end are known."""
        return int(bool((item.targets > 0).any()))

    def decode(
        self, examples: Sequence[QuestionExample], items: Sequence[Item], logits: Sequence[NDArray[np.float32]]
    ) -> list[AnswerPrediction]:
        """The answer of each question, over all of its windows."""
        pairs = groupby(zip(items, logits, strict=True), key=lambda pair: pair[0].example)
        predictions = []
        for _, (_, group) in zip(examples, pairs, strict=True):
            windows, scores = zip(*((item.note, scores) for item, scores in group), strict=True)
            predictions.append(predict_answer(windows, scores, self.options))
        return predictions

    def scorer(self) -> AnswerScorer:
        """An empty scorer."""
        return AnswerScorer(self.options.no_answer_threshold)

    def settings(self) -> dict[str, Any]:
        """The threshold of no answer, where there may be none."""
        threshold = self.options.no_answer_threshold
        return {} if threshold is None else {THRESHOLD: threshold}

    def tuned(self, scores: Mapping[str, float]) -> "AnsweringTask":
        """The task with the threshold that scored best."""
        if THRESHOLD not in scores:
            return self
        return replace(self, options=replace(self.options, no_answer_threshold=scores[THRESHOLD]))


def answering_of(config: BertConfig, settings: Mapping[str, Any]) -> AnsweringTask:
    """The task that a saved model was trained for, here or elsewhere."""
    if "span" not in config.heads:
        raise BertkitError("this checkpoint has no span head; load one that was trained for answering, or train it")
    return AnsweringTask(AnswerOptions(no_answer_threshold=settings.get(THRESHOLD)))


def answering_for(examples: Iterable[QuestionExample]) -> AnsweringTask:
    """The task that these questions call for: with no answer allowed where some have none."""
    some_impossible = False
    for example in examples:
        if not (example.answers or example.is_impossible):
            raise BertkitError(f"{name_of(example)} has no answer to learn from; add it, or set is_impossible")
        some_impossible |= example.is_impossible
    return AnsweringTask(AnswerOptions(no_answer_threshold=0.0 if some_impossible else None))


def name_of(example: QuestionExample) -> str:
    """How to tell the user which question is meant."""
    shown = example.question if len(example.question) <= 40 else example.question[:40] + "..."
    where = f" at line {example.line}" if example.line is not None else ""
    return f"the question {shown!r}{where}"


def answer_tokens(example: QuestionExample, window: AnswerWindow) -> tuple[int, int] | None:
    """Rows of the first and last token of the answer; (0, 0), [CLS], where the window has none; None if unknown."""
    if not example.answers:
        return (0, 0) if example.is_impossible else None
    answer = example.answers[0]
    tokens = window.context.find(answer.start, answer.start + len(answer.text))
    if tokens is None:
        return None  # nothing of the answer is left after tokenizing
    first, last = tokens
    inside = window.start <= first and last < window.stop
    return (first - window.start + window.row, last - window.start + window.row) if inside else (0, 0)


def _say_lost(examples: Sequence[QuestionExample], contexts: Mapping[str, ContextTokens]) -> None:
    """An answer of which the tokenizer leaves nothing cannot be learned: say which."""
    for example in examples:
        answer = example.answers[0] if example.answers else None
        if answer and contexts[example.context].find(answer.start, answer.start + len(answer.text)) is None:
            warnings.warn(
                f"{name_of(example)}: its answer {answer.text!r} at character {answer.start} has no token, "
                "so nothing is learned from it",
                stacklevel=3,
            )


def _item(
    framed: Framed, window: AnswerWindow, answer: tuple[int, int] | None, example: int, tokenizer: Tokenizer
) -> Item:
    context = window.context.ids[window.start : window.stop]
    ids = [tokenizer.cls_id, *framed.question, tokenizer.sep_id, *context, tokenizer.sep_id]
    segment_ids = [0] * window.row + [1] * (len(context) + 1)
    targets = np.full(len(ids), IGNORED if answer is None else 0, dtype=np.int64)
    if answer is not None:
        targets[answer[0]] |= STARTS
        targets[answer[1]] |= ENDS
    return Item(ids, segment_ids, np.arange(len(ids)), targets, example, note=window)
