"""Blocks of documents -> arrays: paragraphs cleaned, split into sentences, encoded, and keyed for de-duplication.

What enters: documents as lists of paragraphs. What leaves: token ids with the lengths of sentences, paragraphs and
documents. A block is encoded by itself, so any process can do it, and results in order are the same for any number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.dedup import KEY
from bertkit.corpus.prepare.words import SentenceEncoder
from bertkit.corpus.store import token_dtype
from bertkit.errors import BertkitError
from bertkit.text.cleaning import clean_paragraph, paragraph_key
from bertkit.text.documents import Document, ReadOptions
from bertkit.text.sentences import split_sentences
from bertkit.tokenizer.wordpiece import Tokenizer

DocumentLayout = Literal["blank-line", "row", "file"]
SentenceLayout = Literal["split", "line"]
LENGTH = np.dtype("<u4")
BLOCK_CHARACTERS = 1 << 19
LONGEST_DOCUMENT = 1 << 22  # characters; a longer one is stored in parts, so that memory stays bounded
SENTENCES_AT_ONCE = 4096

Paragraphs = list[str]


@dataclass(frozen=True)
class PrepareOptions:
    """What decides the bytes of a store, beside the text and the tokenizer."""

    documents: DocumentLayout = "blank-line"  # of .txt files; a row of .jsonl or .parquet is always a document
    sentences: SentenceLayout = "split"  # or one per line
    field: str = "text"  # of a .jsonl row, or the column of a .parquet file
    dedup: bool = True

    def __post_init__(self) -> None:
        for name, known in (("documents", get_args(DocumentLayout)), ("sentences", get_args(SentenceLayout))):
            if getattr(self, name) not in known:
                raise BertkitError(f"{name}={getattr(self, name)!r} is not known; choose {', '.join(known)}")

    def reading(self) -> ReadOptions:
        """The same for the room that reads files; a row of a .txt file is a line."""
        return ReadOptions(
            documents="line" if self.documents == "row" else self.documents,
            lines="sentence" if self.sentences == "line" else "paragraph",
            field=self.field,
            max_characters=LONGEST_DOCUMENT,
        )

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return asdict(self)


@dataclass(frozen=True)
class EncodedBlock:
    """The arrays of a block; nothing in it is empty: no sentence, paragraph or document."""

    tokens: NDArray[Any]  # [T]
    sentences: NDArray[np.uint32]  # [S] tokens in each
    paragraphs: NDArray[np.uint32]  # [P] sentences in each
    documents: NDArray[np.uint32]  # [D] paragraphs in each
    characters: NDArray[np.uint32]  # [P] in each paragraph
    keys: NDArray[Any]  # [P] 128 bits of each paragraph
    num_characters: int  # as read


def blocks_of(documents: Iterable[Document]) -> Iterator[list[Paragraphs]]:
    """Documents together until they have the characters of a block."""
    block: list[Paragraphs] = []
    size = 0
    for document in documents:
        block.append(document.paragraphs)
        size += sum(map(len, document.paragraphs))
        if size >= BLOCK_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


class BlockEncoder:
    """Encodes one block after another."""

    def __init__(self, tokenizer: Tokenizer, options: PrepareOptions) -> None:
        self._dtype = token_dtype(tokenizer.vocab_size)
        self._encoder = SentenceEncoder(tokenizer, self._dtype)
        self._units = _split_units if options.sentences == "split" else _line_units

    def encode(self, block: list[Paragraphs]) -> EncodedBlock:
        """Clean, split, encode and key the paragraphs of some documents."""
        sentences: list[str] = []
        paragraphs: list[int] = []
        documents: list[int] = []
        characters: list[int] = []
        keys: list[bytes] = []
        for document in block:
            before = len(paragraphs)
            for text, parts in self._units(document):
                sentences += parts
                paragraphs.append(len(parts))
                characters.append(len(text))
                keys.append(paragraph_key(text, KEY.itemsize))
            documents.append(len(paragraphs) - before)
        encoded: list[bytes] = []
        for start in range(0, len(sentences), SENTENCES_AT_ONCE):
            encoded += self._encoder.encode(sentences[start : start + SENTENCES_AT_ONCE])
        width = self._dtype.itemsize
        return _without_empty(
            EncodedBlock(
                np.frombuffer(b"".join(encoded), self._dtype),
                np.array([len(ids) // width for ids in encoded], LENGTH),
                np.array(paragraphs, LENGTH),
                np.array(documents, LENGTH),
                np.array(characters, LENGTH),
                np.frombuffer(b"".join(keys), KEY),
                sum(len(text) for document in block for text in document),
            )
        )


def _split_units(document: Paragraphs) -> Iterator[tuple[str, list[str]]]:
    """Each paragraph, cleaned, and its sentences."""
    for paragraph in document:
        if text := clean_paragraph(paragraph):
            yield text, split_sentences(text)


def _line_units(document: Paragraphs) -> Iterator[tuple[str, list[str]]]:
    """The document as one paragraph: a line is a sentence, and short sentences may well occur twice."""
    if lines := [text for text in map(clean_paragraph, document) if text]:
        yield "\n".join(lines), lines


def _without_empty(block: EncodedBlock) -> EncodedBlock:
    """Leave out sentences without tokens, and paragraphs and documents without sentences."""
    if block.sentences.all() and block.paragraphs.all() and block.documents.all():
        return block
    paragraphs = _counts_of(block.sentences > 0, block.paragraphs)
    documents = _counts_of(paragraphs > 0, block.documents)
    kept = paragraphs > 0
    return EncodedBlock(
        block.tokens,
        block.sentences[block.sentences > 0],
        paragraphs[kept],
        documents[documents > 0],
        block.characters[kept],
        block.keys[kept],
        block.num_characters,
    )


def _counts_of(kept: NDArray[np.bool_], groups: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """How many items of each group are kept; `groups` are the sizes of consecutive ones."""
    home = np.repeat(np.arange(len(groups)), groups)
    return np.bincount(home[kept], minlength=len(groups)).astype(LENGTH)
