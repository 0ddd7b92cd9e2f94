"""Questions with contexts as sequences: [CLS] question [SEP] a window of the context [SEP] (section 4.2 of the paper).

In: texts, a tokenizer and a Limit. Out: windows that know where each token stands in the context. Windows slide over
the context alone; a long question is cut, and both are said. No torch here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import LongTextError
from bertkit.tasks.tagging.words import mark_end
from bertkit.text.counted import agree, counted
from bertkit.tokenizer import Encoding, Tokenizer
from bertkit.tokenizer.fitting import Limit, window_spans

NUM_SPECIAL = 3  # [CLS], [SEP], [SEP]


@dataclass(frozen=True)
class ContextTokens:
    """A context as tokens: which characters each covers, and which begin and end words."""

    text: str
    ids: list[int]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    begins_word: NDArray[np.bool_]
    ends_word: NDArray[np.bool_]

    def find(self, start: int, end: int) -> tuple[int, int] | None:
        """The first and the last token with a character in start to end; None where there is none."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.starts, end, side="left")) - 1
        return (first, last) if first <= last else None


@dataclass(frozen=True)
class AnswerWindow:
    """Tokens start to stop (not included) of a context, of which the first stands at `row` of its sequence."""

    context: ContextTokens = field(repr=False)
    start: int
    stop: int
    row: int
    num_cut: int = 0  # tokens of question and context that no window holds


@dataclass(frozen=True)
class Framed:
    """A question with each window of its context."""

    question: list[int]
    windows: list[AnswerWindow]
    question_cut: int = 0  # tokens that no window holds
    context_cut: int = 0


def read_contexts(texts: Sequence[str], tokenizer: Tokenizer) -> dict[str, ContextTokens]:
    """Every different context, tokenized once however many questions it has."""
    different = list(dict.fromkeys(texts))
    encoded = tokenizer.encode_batch(different)
    return {text: read_context(text, encoding) for text, (encoding,) in zip(different, encoded, strict=True)}


def read_context(text: str, encoding: Encoding) -> ContextTokens:
    """A context from its own encoding, [CLS] and [SEP] left out."""
    offsets = np.array(encoding.offsets[1:-1], dtype=np.int64).reshape(-1, 2)
    words = np.array(encoding.word_ids[1:-1], dtype=np.int64)
    changes = words[1:] != words[:-1]
    begins_word, ends_word = np.ones(len(words), dtype=bool), np.ones(len(words), dtype=bool)
    begins_word[1:], ends_word[:-1] = changes, changes
    starts, stops = offsets[:, 0], [*offsets[1:, 0].tolist(), len(text)]
    ends = [mark_end(text, end, stop) for end, stop in zip(offsets[:, 1].tolist(), stops, strict=False)]
    return ContextTokens(text, encoding.ids[1:-1], starts, np.array(ends, dtype=np.int64), begins_word, ends_word)


def frame(question: list[int], context: ContextTokens, limit: Limit, max_question: int, name: str) -> Framed:
    """The windows of one context behind its question, the question cut where it would leave too little room."""
    num_tokens = len(context.ids)
    if limit.max_length is None:
        return Framed(question, [AnswerWindow(context, 0, num_tokens, len(question) + 2)])
    kept = question[: max(0, min(max_question, (limit.max_length - NUM_SPECIAL) // 2))]
    room = limit.max_length - NUM_SPECIAL - len(kept)
    if limit.long == "error" and (num_tokens > room or len(kept) < len(question)):
        raise LongTextError(
            f"{name} has {len(question) + num_tokens + NUM_SPECIAL} tokens with its context, special tokens included, "
            f"and the limit is {limit.max_length}; shorten it, or choose long='window' (--long)"
        )
    spans = [(0, num_tokens)] if num_tokens <= room else _slide(num_tokens, room, limit, name)
    question_cut, context_cut = len(question) - len(kept), num_tokens - spans[-1][1]
    row, num_cut = len(kept) + 2, question_cut + context_cut
    windows = [AnswerWindow(context, start, stop, row, num_cut) for start, stop in spans]
    return Framed(kept, windows, question_cut, context_cut)


def _slide(num_tokens: int, room: int, limit: Limit, name: str) -> list[tuple[int, int]]:
    if room < 1:
        raise LongTextError(f"{name}: no room for a context within {limit.max_length} tokens; allow more")
    if limit.long == "truncate":
        return [(0, room)]
    if limit.stride is not None and limit.stride >= room:
        raise LongTextError(
            f"{name}: windows have room for {room} tokens of the context, so they cannot share {limit.stride}; "
            f"choose a stride below {room}"
        )
    return window_spans(num_tokens, room, limit.stride)


def summarise(framed: Sequence[Framed], limit: Limit) -> str | None:
    """What was cut or split in one call, as one line; None when all was whole."""
    questions = [one for one in framed if one.question_cut]
    split = [one for one in framed if len(one.windows) > 1]
    cut = [one for one in framed if one.context_cut]
    parts = []
    if questions:
        parts.append(_cut("question", len(questions), len(framed), sum(one.question_cut for one in questions)))
    if cut:
        parts.append(_cut("context", len(cut), len(framed), sum(one.context_cut for one in cut)))
    if split:
        num_windows = sum(len(one.windows) for one in split)
        were = agree(len(split), "was", "were")
        parts.append(f"{len(split)} of {counted(len(framed), 'context')} {were} split into {num_windows} windows")
    return f"with more than {limit.max_length} tokens: {'; '.join(parts)}" if parts else None


def _cut(noun: str, num_cut: int, num_all: int, lost: int) -> str:
    where = agree(num_cut, "its end", "their ends")
    return f"{num_cut} of {counted(num_all, noun)} {agree(num_cut, 'was', 'were')} cut, {counted(lost, 'token')} from {where}"
