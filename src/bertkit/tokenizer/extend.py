"""Adding words to a vocabulary that exists: which of them, at which ids, and the pieces they were until now.

What enters: a tokenizer and words. What leaves: a tokenizer that keeps each of them whole, in place of [unused] rows
or after the last token; all other ids stay. The model's rows are made in inference/extend_vocabulary.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from bertkit.errors import BertkitError
from bertkit.tokenizer.train import MAX_WORD_LENGTH
from bertkit.tokenizer.wordpiece import Tokenizer

UNUSED = re.compile(r"\[(?:unused|blank)\d+\]")


@dataclass(frozen=True)
class AddedWord:
    """A word as the vocabulary spells it, its id, and the ids of the pieces that it was before."""

    word: str
    id: int
    pieces: list[int]


@dataclass(frozen=True)
class SkippedWord:
    """A word that was not added, and why."""

    word: str
    reason: str


@dataclass(frozen=True)
class ExtendedVocabulary:
    """The new tokenizer, what was added to it and what was not."""

    tokenizer: Tokenizer
    added: list[AddedWord]
    skipped: list[SkippedWord]


def extend_vocabulary(tokenizer: Tokenizer, words: Iterable[str], *, into_unused: bool = False) -> ExtendedVocabulary:
    """Make each of these words one token; words that already are, or that BERT's pipeline cuts apart, are skipped."""
    spelled, skipped = choose_words(tokenizer, words)
    if not spelled:
        why = f": {skipped[0].word!r} {skipped[0].reason}" if skipped else ""
        raise BertkitError(f"there is no word to add{why}; give words that the vocabulary cuts into pieces")
    rows = free_rows(tokenizer, len(spelled)) if into_unused else range(tokenizer.vocab_size, 10**9)
    pieces = tokenizer.encode_ids(spelled)
    added = [AddedWord(word, row, ids) for word, row, ids in zip(spelled, rows, pieces, strict=False)]
    return ExtendedVocabulary(tokenizer.with_words({entry.id: entry.word for entry in added}), added, skipped)


def choose_words(tokenizer: Tokenizer, words: Iterable[str]) -> tuple[list[str], list[SkippedWord]]:
    """The words to add as the vocabulary spells them, in their order, and the others with the reason."""
    chosen: dict[str, None] = {}
    skipped = []
    for word in words:
        if not word.strip():
            continue
        parts = tokenizer.split_words(word.strip())
        if reason := _reason_to_skip(tokenizer, parts, chosen):
            skipped.append(SkippedWord(word.strip(), reason))
        else:
            chosen[parts[0]] = None
    return list(chosen), skipped


def _reason_to_skip(tokenizer: Tokenizer, parts: list[str], chosen: dict[str, None]) -> str | None:
    if len(parts) != 1:
        cut = f" ({' '.join(parts)})" if parts else ""
        return f"is {len(parts)} words for BERT{cut}; add those that are cut" if parts else "is no word for BERT"
    if parts[0] in tokenizer:
        return "is whole already"
    if parts[0] in chosen:
        return "is given twice"
    if len(parts[0]) > MAX_WORD_LENGTH:
        return f"has more than {MAX_WORD_LENGTH} characters"
    return None


def free_rows(tokenizer: Tokenizer, count: int) -> list[int]:
    """The first ids whose tokens are placeholders; one that somebody added as a token is in use."""
    in_use = {token["id"] for token in tokenizer.spec["added_tokens"]}
    found = [row for row, token in enumerate(tokenizer.tokens) if UNUSED.fullmatch(token) and row not in in_use]
    if len(found) < count:
        raise BertkitError(
            f"{count} words need as many [unused] rows, but the vocabulary has {len(found)}; "
            "append them instead, or give fewer words"
        )
    return found[:count]
