"""Making texts fit: whole where they do, else cut or split into windows as the caller chose.

What enters: raw encodings of the `tokenizers` library without special tokens, and a Limit.
What leaves: finished Encodings, and one line that says what was cut or split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import tokenizers as tk

from bertkit.errors import BertkitError, LongTextError
from bertkit.text.counted import agree, counted
from bertkit.tokenizer.encoding import WHOLE, Encoding, SpecialTokens, Window

LongPolicy = Literal["error", "truncate", "window"]


@dataclass(frozen=True, slots=True)
class Limit:
    """How many tokens a model takes, special tokens included, and what to do with longer texts."""

    max_length: int | None = None
    long: LongPolicy = "error"
    stride: int | None = None  # tokens that neighbouring windows share; None: a quarter of a window's text

    def __post_init__(self) -> None:
        if self.long not in ("error", "truncate", "window"):
            raise BertkitError(f"long is {self.long!r} but must be 'error', 'truncate' or 'window'")
        if self.max_length is not None and self.max_length < 3:
            raise BertkitError(f"max_length is {self.max_length} but [CLS], one token and [SEP] need 3")
        if self.stride is not None and self.stride < 0:
            raise BertkitError(f"stride is {self.stride} but must be 0 or more: the tokens that windows share")


@dataclass(frozen=True, slots=True)
class Frame:
    """The special tokens to put around texts."""

    special: SpecialTokens
    cls_id: int
    sep_id: int

    def put_around(
        self, raw_a: tk.Encoding, raw_b: tk.Encoding | None, *, num_a: int, num_b: int, window: Window, num_cut: int = 0
    ) -> Encoding:
        """[CLS] a [SEP] or [CLS] a [SEP] b [SEP] of the given stretches of both texts."""
        ids = [self.cls_id, *raw_a.ids[window.start_a : window.start_a + num_a], self.sep_id]
        if raw_b is None:
            return Encoding(ids, num_a, None, num_cut, window, raw_a, None, self.special)
        ids += raw_b.ids[window.start_b : window.start_b + num_b]
        ids.append(self.sep_id)
        return Encoding(ids, num_a, num_b, num_cut, window, raw_a, raw_b, self.special)


def fit_long(frame: Frame, raw_a: tk.Encoding, raw_b: tk.Encoding | None, limit: Limit, name: str) -> list[Encoding]:
    """The Encodings of a text that is over the limit; `name` tells the user which text it is."""
    assert limit.max_length is not None
    num_a, num_b = len(raw_a), 0 if raw_b is None else len(raw_b)
    num_special = 2 if raw_b is None else 3
    if limit.long == "error":
        whole = name if raw_b is None else f"{name} with its pair"
        raise LongTextError(
            f"{whole} has {num_a + num_b + num_special} tokens, special tokens included, and the limit is "
            f"{limit.max_length}; shorten it, or choose long='truncate' or 'window' (--long) where that is offered"
        )
    room = limit.max_length - num_special
    if limit.long == "truncate":
        keep_a, keep_b = kept_lengths(num_a, num_b, room)
        num_cut = num_a + num_b - keep_a - keep_b
        return [frame.put_around(raw_a, raw_b, num_a=keep_a, num_b=keep_b, window=WHOLE, num_cut=num_cut)]
    sliding = 0 if raw_b is None or num_a > num_b else 1
    num_long, num_fixed = (num_a, num_b) if sliding == 0 else (num_b, num_a)
    spans = window_spans(num_long, check_room(room - num_fixed, num_fixed, limit, name), limit.stride)
    encodings = []
    for index, (start, stop) in enumerate(spans):
        if sliding == 0:
            window = Window(index, len(spans), start_a=start, sliding_text=0)
            encodings.append(frame.put_around(raw_a, raw_b, num_a=stop - start, num_b=num_b, window=window))
        else:
            window = Window(index, len(spans), start_b=start, sliding_text=1)
            encodings.append(frame.put_around(raw_a, raw_b, num_a=num_a, num_b=stop - start, window=window))
    return encodings


def check_room(room: int, num_fixed: int, limit: Limit, name: str) -> int:
    """The room that a window has for the sliding text, or an error when windows could not move on."""
    if room < 1:
        raise LongTextError(
            f"{name}: the shorter text of the pair has {num_fixed} tokens and leaves no room for windows of the longer "
            f"within {limit.max_length}; shorten it or choose long='truncate'"
        )
    if limit.stride is not None and limit.stride >= room:
        raise LongTextError(
            f"{name}: windows have room for {room} tokens, so they cannot share {limit.stride}; "
            f"choose a stride below {room}"
        )
    return room


def kept_lengths(num_a: int, num_b: int, room: int) -> tuple[int, int]:
    """Tokens of A and of B to keep so that both fit, taking from the end of the longer text first."""
    if num_a + num_b <= room:
        return num_a, num_b
    shorter, half = min(num_a, num_b), room // 2
    if shorter > half:
        # Both are cut to halves; an odd token goes to the longer text, and to B when they are equally long.
        return (room - half, half) if num_a > num_b else (half, room - half)
    return (room - num_b, num_b) if num_a > num_b else (num_a, room - num_a)


def window_spans(num_tokens: int, room: int, stride: int | None) -> list[tuple[int, int]]:
    """Spans of at most `room` tokens that cover all tokens, each sharing `stride` tokens with the one before."""
    step = room - (room // 4 if stride is None else stride)
    num_windows = 1 + -(-max(0, num_tokens - room) // step)
    return [(i * step, min(i * step + room, num_tokens)) for i in range(num_windows)]


def summarise(long_texts: list[list[Encoding]], num_texts: int, limit: Limit) -> str:
    """What was cut or split in one call, as one line."""
    have = agree(len(long_texts), "has", "have")
    found = f"{len(long_texts)} of {counted(num_texts, 'text')} {have} more than {limit.max_length} tokens"
    if limit.long == "truncate":
        num_cut = sum(windows[0].num_cut for windows in long_texts)
        return (
            f"{found}: {counted(num_cut, 'token was', 'tokens were')} cut from the ends; long='window' keeps them all"
        )
    num_windows = sum(map(len, long_texts))
    return f"{found}: split into {num_windows} windows (over the longer text of a pair)"
