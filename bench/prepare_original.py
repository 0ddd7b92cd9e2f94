"""How BERT's original data script works, written out plainly, for scale: one core, pure Python, everything in memory.

What enters: documents as lists of sentences. What leaves: a file of padded and masked examples, several times over.
The examples are written as plain int32 arrays where the original writes TFRecord files.
"""

import random
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

MAX_LENGTH = 128
MAX_MASKED = 20
MASK_SHARE = 0.15
SHORT_SHARE = 0.1

Tokens = list[str]
Document = list[Tokens]


def is_mark(character: str) -> bool:
    """Punctuation, as BERT counts it."""
    code = ord(character)
    ascii_mark = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_mark or unicodedata.category(character).startswith("P")


def split_words(text: str) -> list[str]:
    """Cleaned, lower-cased, without accents, split at spaces and marks."""
    kept = [" " if c in "\t\n\r" or unicodedata.category(c) == "Zs" else c for c in text if ord(c) not in (0, 0xFFFD)]
    words = []
    for chunk in "".join(c for c in kept if c == " " or not unicodedata.category(c).startswith("C")).split():
        word = ""
        for character in unicodedata.normalize("NFD", chunk.lower()):
            if unicodedata.category(character) == "Mn":
                continue
            if is_mark(character):
                words += [word, character] if word else [character]
                word = ""
            else:
                word += character
        words += [word] if word else []
    return words


def split_pieces(word: str, vocab: dict[str, int]) -> list[str]:
    """Greedy: the longest piece that fits, again and again."""
    pieces, start = [], 0
    while start < len(word):
        end = len(word)
        while end > start and ("##" if start else "") + word[start:end] not in vocab:
            end -= 1
        if end == start:
            return ["[UNK]"]
        pieces.append(("##" if start else "") + word[start:end])
        start = end
    return pieces


def tokenize(sentence: str, vocab: dict[str, int]) -> Tokens:
    """The pieces of a sentence."""
    return [piece for word in split_words(sentence) for piece in split_pieces(word, vocab)]


def make_examples(
    documents: Sequence[Sequence[str]], vocab: dict[str, int], out: Path, *, copies: int = 10, seed: int = 1
) -> int:
    """The whole script: tokenize all, then every document `copies` times with new pairs and masks; gives the bytes."""
    rng = random.Random(seed)
    tokenized = [[tokenize(sentence, vocab) for sentence in document] for document in documents]
    rng.shuffle(tokenized)
    words = list(vocab)
    examples = []
    for _ in range(copies):
        for index in range(len(tokenized)):
            examples += examples_of(tokenized, index, words, rng)
    rng.shuffle(examples)
    with out.open("wb") as file:
        for tokens, segments, places, labels, is_next in examples:
            write_example(file, vocab, tokens, segments, places, labels, is_next)
    return out.stat().st_size


Example = tuple[Tokens, list[int], list[int], Tokens, bool]


def examples_of(documents: list[Document], index: int, words: Tokens, rng: random.Random) -> list[Example]:
    """Sentence pairs of one document: half really next, half from another document."""
    document, room = documents[index], MAX_LENGTH - 3
    target = rng.randint(2, room) if rng.random() < SHORT_SHARE else room
    examples = []
    chunk: list[Tokens] = []
    at = 0
    while at < len(document):
        chunk.append(document[at])
        if at == len(document) - 1 or sum(map(len, chunk)) >= target:
            split = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = [token for sentence in chunk[:split] for token in sentence]
            is_next = len(chunk) > 1 and rng.random() >= 0.5
            if is_next:
                b = [token for sentence in chunk[split:] for token in sentence]
            else:
                b = stranger(documents, index, target - len(a), rng)
                at -= len(chunk) - split  # what would have been B is used again
            truncate(a, b, room, rng)
            if a and b:
                examples.append(masked(a, b, is_next, words, rng))
            chunk = []
            target = rng.randint(2, room) if rng.random() < SHORT_SHARE else room
        at += 1
    return examples


def stranger(documents: list[Document], index: int, size: int, rng: random.Random) -> Tokens:
    """Sentences from a random place of another document."""
    other = index
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    tokens: Tokens = []
    for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
        tokens += sentence
        if len(tokens) >= size:
            break
    return tokens


def truncate(a: Tokens, b: Tokens, room: int, rng: random.Random) -> None:
    """Drop from the front or the end of the longer one."""
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def masked(a: Tokens, b: Tokens, is_next: bool, words: Tokens, rng: random.Random) -> Example:
    """15 % of the tokens: 80 % [MASK], 10 % themselves, 10 % any."""
    tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
    segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
    places = [place for place, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    rng.shuffle(places)
    places = sorted(places[: min(MAX_MASKED, max(1, round(len(tokens) * MASK_SHARE)))])
    labels = [tokens[place] for place in places]
    for place in places:
        if rng.random() < 0.8:
            tokens[place] = "[MASK]"
        elif rng.random() >= 0.5:
            tokens[place] = words[rng.randint(0, len(words) - 1)]
    return tokens, segments, places, labels, is_next


def write_example(
    file: BinaryIO,
    vocab: dict[str, int],
    tokens: Tokens,
    segments: list[int],
    places: list[int],
    labels: Tokens,
    is_next: bool,
) -> None:
    """Ids, mask and segments padded to the full length; places, labels and weights to the most there can be."""
    rest, free = [0] * (MAX_LENGTH - len(tokens)), [0] * (MAX_MASKED - len(places))
    values = [*(vocab[token] for token in tokens), *rest, *[1] * len(tokens), *rest, *segments, *rest]
    values += [*places, *free, *(vocab[token] for token in labels), *free, *[1] * len(places), *free, int(not is_next)]
    file.write(np.array(values, np.int32).tobytes())
