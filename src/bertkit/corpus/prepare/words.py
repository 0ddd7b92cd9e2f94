"""Sentences -> token ids as bytes, fast: what stands between two spaces is encoded once and then remembered.

BERT's pipeline splits at white space before anything else looks at more than one character, so the ids of a sentence
are the ids of its space-separated chunks, one after the other; a new chunk of ASCII is put together from its words
and marks. Text repeats them so much that looking up is several times faster than encoding. Other pipelines than
BERT's own encode whole sentences.
"""

import re
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertkit.tokenizer import pipeline
from bertkit.tokenizer.wordpiece import Tokenizer

MOST_KNOWN = 200_000  # chunks, and as many words: about 30 MiB each
LONGEST_KNOWN = 32  # characters; longer ones (scripts without spaces, addresses) do not come again
WORDS_AND_MARKS = re.compile(r"[0-9A-Za-z]+|[^0-9A-Za-z]")  # how BERT splits ASCII without white space


class SentenceEncoder:
    """Encodes many sentences; what it remembers makes it faster and changes nothing."""

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype[Any]) -> None:
        self._tokenizer = tokenizer
        self._typecode = dtype.char
        self._by_chunk = splits_at_spaces(tokenizer)
        self._chunks: dict[str, bytes] = {}
        self._words: dict[str, bytes] = {}

    def encode(self, sentences: Sequence[str]) -> list[bytes]:
        """The ids of each sentence, without special tokens, as the bytes of an array."""
        if not self._by_chunk:
            return self._encode_whole(sentences)
        chunks = [sentence.split(" ") for sentence in sentences]
        known = self._chunks
        missing = sorted(set().union(*chunks).difference(known))
        self._learn_chunks(missing)
        encoded = [b"".join(map(known.__getitem__, parts)) for parts in chunks]
        _forget(known, missing)
        return encoded

    def _learn_chunks(self, chunks: list[str]) -> None:
        plain = {chunk: WORDS_AND_MARKS.findall(chunk) for chunk in chunks if _is_plain(chunk)}
        known = self._words
        missing = sorted(set().union(*plain.values()).difference(known))
        others = [chunk for chunk in chunks if chunk not in plain]
        encoded = self._encode_whole(missing + others)
        known.update(zip(missing, encoded, strict=False))
        self._chunks.update(zip(others, encoded[len(missing) :], strict=True))
        self._chunks.update((chunk, b"".join([known[word] for word in words])) for chunk, words in plain.items())
        _forget(known, missing)

    def _encode_whole(self, texts: Sequence[str]) -> list[bytes]:
        # A corpus may speak of [SEP] and [MASK]; only the frame and the masks of an example hold those tokens.
        return [array(self._typecode, ids).tobytes() for ids in self._tokenizer.encode_ids(texts, special=False)]


def _is_plain(chunk: str) -> bool:
    return chunk.isascii() and chunk.isprintable()


def _forget(known: dict[str, bytes], added: list[str]) -> None:
    """Keep what will come again, and not too much of it."""
    for text in added:
        if len(text) > LONGEST_KNOWN:
            del known[text]
    while len(known) > MOST_KNOWN:
        known.popitem()  # the newest: the commonest were met first


def splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Whether a text's ids are those of its space-separated chunks: added words may have spaces or marks in them."""
    spec = tokenizer.spec
    return pipeline.is_standard(spec) and all(token["special"] for token in spec["added_tokens"])
