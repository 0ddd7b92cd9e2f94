"""From start and end scores to answers: the best legal spans over all windows of a context, or no answer.

A span's score is S.T_i + E.T_j (section 4.2 of the paper); legal are spans within the context, from a word's start to
a word's end, of bounded length. A span that several windows hold is judged by the one where it has most context. The
score of "no answer" is S.C + E.C (section 4.3), the lowest over windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.tasks.answering.context import AnswerWindow

ENDLESS = np.int64(10**9)  # context at the text's own edges, where nothing is missing


@dataclass(frozen=True)
class AnswerOptions:
    """What an answer may be, and how many to give."""

    max_answer_tokens: int = 30
    max_question_tokens: int = 64
    top_k: int = 5  # the best answer and its runners-up
    num_candidates: int = 20  # spans among which the confidence is shared
    whole_words: bool = True
    no_answer_threshold: float | None = None  # None: there is always an answer

    def __post_init__(self) -> None:
        for name in ("max_answer_tokens", "max_question_tokens", "top_k", "num_candidates"):
            if getattr(self, name) < 1:
                raise BertkitError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True)
class AnswerSpan:
    """A stretch of the context, context[start:end] == text, with its score."""

    text: str
    start: int
    end: int
    score: float  # S.T_start + E.T_end
    confidence: float  # its share among the best spans and, where that is allowed, no answer


@dataclass(frozen=True)
class AnswerPrediction:
    """The answer, context[start:end] == text; an empty text means that the context does not tell."""

    text: str
    start: int
    end: int
    score: float  # of the best span, also where no answer was preferred
    no_answer_score: float
    confidence: float
    runners_up: tuple[AnswerSpan, ...]  # the next best; where no answer was preferred, the best span comes first
    num_windows: int = 1  # more: the context was long, and all windows were searched
    num_cut: int = 0  # tokens of question and context that were left out

    @property
    def best_span(self) -> AnswerSpan | None:
        """The best span whether or not it was preferred to no answer; None in a context without words."""
        if self.text:
            return AnswerSpan(self.text, self.start, self.end, self.score, self.confidence)
        return self.runners_up[0] if self.runners_up else None

    @property
    def no_answer_lead(self) -> float:
        """By how much no answer beats the best span; above the threshold it is preferred."""
        return self.no_answer_score - self.score


def predict_answer(
    windows: Sequence[AnswerWindow], logits: Sequence[NDArray[np.float32]], options: AnswerOptions
) -> AnswerPrediction:
    """The answer of one question from the scores [R, 2] of each of its windows."""
    no_answer = min(float(scores[0].astype(np.float64).sum()) for scores in logits)
    spans = rank_spans(windows, logits, options)
    allowed = options.no_answer_threshold is not None
    shares = _softmax([span.score for span in spans] + [no_answer] * allowed)
    spans = [replace(span, confidence=share) for span, share in zip(spans, shares, strict=False)]
    size = {"num_windows": len(windows), "num_cut": windows[0].num_cut}
    if not spans:
        return AnswerPrediction("", 0, 0, no_answer, no_answer, 1.0, (), **size)
    best, rest = spans[0], tuple(spans[: options.top_k])
    if options.no_answer_threshold is not None and no_answer - best.score > options.no_answer_threshold:
        return AnswerPrediction("", 0, 0, best.score, no_answer, shares[-1], rest, **size)
    return AnswerPrediction(best.text, best.start, best.end, best.score, no_answer, best.confidence, rest[1:], **size)


def rank_spans(
    windows: Sequence[AnswerWindow], logits: Sequence[NDArray[np.float32]], options: AnswerOptions
) -> list[AnswerSpan]:
    """The best legal spans with different texts, best first."""
    found: list[tuple[float, int, int]] = []
    for index, scores in enumerate(logits):
        found += window_spans_by_score(windows, index, scores, options)
    if not found and options.whole_words:  # one word longer than an answer may be: a part of it is better than nothing
        return rank_spans(windows, logits, replace(options, whole_words=False))
    found.sort(key=lambda span: (-span[0], span[1], span[2]))
    context = windows[0].context
    spans: dict[str, AnswerSpan] = {}
    for score, first, last in found:
        start, end = int(context.starts[first]), int(context.ends[last])
        text = context.text[start:end]
        if text and text not in spans:
            spans[text] = AnswerSpan(text, start, end, score, 0.0)
    return list(spans.values())[: options.num_candidates]


def window_spans_by_score(
    windows: Sequence[AnswerWindow], index: int, logits: NDArray[np.float32], options: AnswerOptions
) -> list[tuple[float, int, int]]:
    """(score, first token, last token) of the best legal spans that this window judges."""
    window = windows[index]
    num_tokens = window.stop - window.start
    if not num_tokens:
        return []
    own = logits[window.row : window.row + num_tokens].astype(np.float64)
    width = min(options.max_answer_tokens, num_tokens)
    ends = np.concatenate([own[:, 1], np.full(width - 1, -np.inf)])
    scores = own[:, :1] + np.lib.stride_tricks.sliding_window_view(ends, width)  # [tokens, widths]
    scores = np.where(_legal(windows, index, width, options), scores, -np.inf).ravel()
    count = min(options.num_candidates, scores.size)
    best = np.argpartition(-scores, count - 1)[:count]
    places = ((float(scores[place]), divmod(int(place), width)) for place in best)
    return [
        (score, window.start + first, window.start + first + more) for score, (first, more) in places if score > -np.inf
    ]


def _legal(windows: Sequence[AnswerWindow], index: int, width: int, options: AnswerOptions) -> NDArray[np.bool_]:
    """Which spans (first token of the window by further tokens) may be answers here: [tokens, widths]."""
    window, context = windows[index], windows[index].context
    first = np.arange(window.start, window.stop)[:, None]
    last = first + np.arange(width)
    legal = last < window.stop
    if options.whole_words:
        legal &= context.begins_word[first] & context.ends_word[np.minimum(last, window.stop - 1)]
    here = _context_of(window, first, last)
    for other, neighbour in enumerate(windows):
        if other != index and neighbour.start < window.stop and window.start < neighbour.stop:
            there = _context_of(neighbour, first, last)
            legal &= here > there if other < index else here >= there
    return legal


def _context_of(window: AnswerWindow, first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens between each span and the nearer edge of the window; -1 for spans that it does not hold."""
    left = np.full_like(first, ENDLESS) if window.start == 0 else first - window.start
    right = np.full_like(last, ENDLESS) if window.stop == len(window.context.ids) else window.stop - 1 - last
    inside = (first >= window.start) & (last < window.stop)
    return np.where(inside, np.minimum(left, right), -1)


def _softmax(scores: Sequence[float]) -> list[float]:
    if not scores:
        return []
    shifted = np.exp(np.array(scores) - max(scores))
    shares: list[float] = (shifted / shifted.sum()).tolist()
    return shares
