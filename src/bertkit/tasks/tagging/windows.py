"""Sentences longer than the model: windows over whole words, each word read where it has most context.

In: how many pieces each word has, and a Limit. Out: windows, and for each the words that are read in it; every word
is read in exactly one, so targets and predictions need no merging.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from bertkit.errors import LongTextError
from bertkit.tokenizer.fitting import Limit

NUM_SPECIAL = 2  # [CLS] and [SEP]
ENDLESS = 10**9  # context at the sentence's own edges, where nothing is missing


@dataclass(frozen=True)
class WordWindow:
    """Words first to stop (not included) of a sentence, of which some are read here."""

    first: int
    stop: int
    read: tuple[int, ...]


def plan_windows(sizes: Sequence[int], limit: Limit, name: str) -> list[WordWindow]:
    """The windows of a sentence whose words have these numbers of pieces; one where all of it fits."""
    num_words, total = len(sizes), sum(sizes)
    if limit.max_length is None or total + NUM_SPECIAL <= limit.max_length:
        return [WordWindow(0, num_words, tuple(range(num_words)))]
    if limit.long == "error":
        raise LongTextError(
            f"{name} has {total + NUM_SPECIAL} tokens, special tokens included, and the limit is {limit.max_length}; "
            "shorten it, or choose long='window' or 'truncate' (--long)"
        )
    room = limit.max_length - NUM_SPECIAL
    if limit.long == "truncate":
        stop = window_spans(sizes, room, 0)[0][1]
        return [WordWindow(0, stop, tuple(range(stop)))]
    spans = window_spans(sizes, room, shared_tokens(room, limit, name))
    owners = choose_windows(sizes, spans)
    read = [tuple(word for word, owner in enumerate(owners) if owner == index) for index in range(len(spans))]
    return [WordWindow(*span, words) for span, words in zip(spans, read, strict=True) if words]


def shared_tokens(room: int, limit: Limit, name: str) -> int:
    """How many tokens neighbouring windows may share."""
    if limit.stride is not None and limit.stride >= room:
        raise LongTextError(
            f"{name}: windows have room for {room} tokens, so they cannot share {limit.stride}; "
            f"choose a stride below {room}"
        )
    return room // 4 if limit.stride is None else limit.stride


def window_spans(sizes: Sequence[int], room: int, shared: int) -> list[tuple[int, int]]:
    """Spans of words that fit the room and cover all; each shares up to `shared` tokens with the one before."""
    sizes = [min(size, room) for size in sizes]  # a word longer than a window is cut to one
    spans: list[tuple[int, int]] = []
    first = stop = filled = 0
    while stop < len(sizes):
        while stop < len(sizes) and filled + sizes[stop] <= room:
            filled += sizes[stop]
            stop += 1
        spans.append((first, stop))
        # Go on behind as many words as are not to be shared, and at least as many as let the next word in.
        while stop < len(sizes) and (first == spans[-1][0] or filled > shared or filled + sizes[stop] > room):
            filled -= sizes[first]
            first += 1
    return spans


def choose_windows(sizes: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """For each word the window in which the nearer edge is farthest away; the earlier of two equals."""
    before = [0, *accumulate(sizes)]
    owners = [0] * len(sizes)
    context = [-1] * len(sizes)
    for index, (first, stop) in enumerate(spans):
        for word in range(first, stop):
            left = ENDLESS if first == 0 else before[word] - before[first]
            right = ENDLESS if stop == len(sizes) else before[stop] - before[word + 1]
            if min(left, right) > context[word]:
                owners[word], context[word] = index, min(left, right)
    return owners
