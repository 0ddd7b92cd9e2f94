"""Counting words, cut as BERT's tokenizer cuts them: what a vocabulary is learned from.

What enters: lines of text. What leaves: how often each word occurs.
A body of text has few different words, so the lines are only split at spaces and the parts counted; the normalizer
and the pre-tokenizer, which never look beyond a space, then see each different part once. One core counts about 15 MB/s.
"""

from __future__ import annotations

import string
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import tokenizers as tk

from bertkit.tokenizer.inputs import explain_refusal

MAX_PARTS = 2**20  # different parts held before they are folded into words
BATCH_CHARACTERS = 16 * 2**20  # one piece of work for one process

Progress = Callable[[int], None]  # takes the number of lines done


def count_words(
    lines: Iterable[str], *, lowercase: bool, num_workers: int = 1, progress: Progress | None = None
) -> Counter[str]:
    """How often each word occurs; with several workers, this process only adds up what they count."""
    counts: Counter[str] = Counter()
    for batch, more in counted_batches(lines, lowercase, num_workers):
        counts.update(more)
        if progress is not None:
            progress(batch)
    return counts


def counted_batches(lines: Iterable[str], lowercase: bool, num_workers: int) -> Iterator[tuple[int, Counter[str]]]:
    """The number of lines and the word counts of each batch, in the order of the lines."""
    batches = batched(lines)
    if num_workers <= 1:
        for batch in batches:
            yield len(batch), count_batch(batch, lowercase)
        return
    # A fresh process, not a fork: the tokenizers library may have started threads in this one.
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn")) as pool:
        waiting: deque[tuple[int, Future[Counter[str]]]] = deque()
        for batch in batches:
            waiting.append((len(batch), pool.submit(count_batch, batch, lowercase)))
            if len(waiting) > num_workers:  # bounded: as many batches in memory as workers, and one
                size, done = waiting.popleft()
                yield size, done.result()
        for size, done in waiting:
            yield size, done.result()


def batched(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lists of lines of about equal size."""
    batch: list[str] = []
    size = 0
    for line in lines:
        if refusal := None if isinstance(line, str) else explain_refusal([line]):
            raise refusal
        batch.append(line)
        size += len(line)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def count_batch(lines: list[str], lowercase: bool) -> Counter[str]:
    """The words of one batch of lines."""
    parts: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for line in lines:
        parts.update(line.split(" "))  # no other white space: the normalizer removes some that split() would split at
        if len(parts) > MAX_PARTS:
            fold_parts(parts, counts, lowercase)
            parts.clear()
    fold_parts(parts, counts, lowercase)
    return counts


def fold_parts(parts: Counter[str], counts: Counter[str], lowercase: bool) -> None:
    """Add the words of each part, as often as the part occurred."""
    normalizer = tk.normalizers.BertNormalizer(lowercase=lowercase)
    splitter = tk.pre_tokenizers.BertPreTokenizer()
    for part, count in parts.items():
        word = part.rstrip(string.punctuation)
        if word.isascii() and word.isalnum():  # most parts; each mark after them is a word of its own
            counts[word.lower() if lowercase else word] += count
            for mark in part[len(word) :]:
                counts[mark] += count
            continue
        try:
            pieces = splitter.pre_tokenize_str(normalizer.normalize_str(part))
        except (TypeError, UnicodeEncodeError):
            if refusal := explain_refusal([part]):
                raise refusal from None
            raise
        for piece, _ in pieces:
            counts[piece] += count
