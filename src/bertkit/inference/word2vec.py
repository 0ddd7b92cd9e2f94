"""Vectors of chosen words from a word2vec file, in its text or binary format, plain or .gz.

Both begin with a line "words dimensions". Text: a line a word, numbers in decimal. Binary: the word, a space, and
the numbers as little-endian float32. The file is read once, from front to back, until the words are found.
"""

import gzip
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import BertkitError

Vector = NDArray[np.float32]
MOST_DIMENSIONS = 100_000
MOST_WORD_BYTES = 10_000
MOST_NUMBER_BYTES = 32


def read_word2vec(path: Path, words: Collection[str]) -> dict[str, Vector]:
    """The vectors of those words that the file has; a broken file is one clear line."""
    try:
        with open_vectors(path) as file:
            return _collect(path, file, set(words))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise BertkitError(f"cannot read {path}: {reason}; give a word2vec file, text or binary") from error


def open_vectors(path: Path) -> BinaryIO:
    """The bytes of the file, unpacked."""
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _collect(path: Path, file: BinaryIO, wanted: set[str]) -> dict[str, Vector]:
    num_words, dimensions = _header(path, file)
    first = file.readline(MOST_WORD_BYTES + MOST_NUMBER_BYTES * dimensions)  # in binary there may be no end of a line
    rows = _text_rows if _is_text(first, dimensions) else _binary_rows
    found: dict[str, Vector] = {}
    for word, vector in rows(path, _Rest(first, file), num_words, dimensions):
        if word in wanted:
            if not np.isfinite(vector).all():
                raise BertkitError(f"{path}: the vector of {word!r} is not finite; the file is damaged")
            found.setdefault(word, vector)
        if len(found) == len(wanted):
            break
    return found


class _Rest:
    """A file that gives back first what was read from it to see its format."""

    def __init__(self, first: bytes, file: BinaryIO) -> None:
        self.first, self.file = first, file

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes, or fewer at the end."""
        head, self.first = self.first[:size], self.first[size:]
        return head if len(head) == size else head + self.file.read(size - len(head))

    def readline(self) -> bytes:
        """One line."""
        line, self.first = self.first, b""
        return line if line.endswith(b"\n") else line + self.file.readline()


def _header(path: Path, file: BinaryIO) -> tuple[int, int]:
    fields = file.readline(200).split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        num_words, dimensions = (int(field) for field in fields)
        if num_words and 0 < dimensions <= MOST_DIMENSIONS:
            return num_words, dimensions
    raise BertkitError(f"{path} is no word2vec file: its first line must be two numbers, words and dimensions")


def _is_text(line: bytes, dimensions: int) -> bool:
    fields = line.split()
    try:
        return len(fields) > dimensions and all(np.isfinite(float(field)) for field in fields[-dimensions:])
    except ValueError:
        return False


def _text_rows(path: Path, file: _Rest, num_words: int, dimensions: int) -> Iterator[tuple[str, Vector]]:
    for row in range(num_words):
        line = file.readline().rstrip(b"\r\n ")
        if not line:
            raise _cut_short(path, row, num_words)
        word, *values = line.rsplit(b" ", dimensions)
        try:
            yield _decoded(word), np.array([float(value) for value in values], dtype=np.float32).reshape(dimensions)
        except ValueError:
            raise BertkitError(f"{path}: line {row + 2} is not a word and {dimensions} numbers") from None


def _binary_rows(path: Path, file: _Rest, num_words: int, dimensions: int) -> Iterator[tuple[str, Vector]]:
    for row in range(num_words):
        word = _binary_word(path, file, row, num_words)
        values = file.read(4 * dimensions)
        if len(values) < 4 * dimensions:
            raise _cut_short(path, row, num_words)
        yield _decoded(word), np.frombuffer(values, dtype="<f4").astype(np.float32)


def _binary_word(path: Path, file: _Rest, row: int, num_words: int) -> bytes:
    word = bytearray()
    while (byte := file.read(1)) != b" ":
        if not byte:
            raise _cut_short(path, row, num_words)
        word += byte
        if len(word) > MOST_WORD_BYTES:
            raise BertkitError(f"{path}: word {row + 1} does not end; the file is damaged, or no word2vec file")
    return bytes(word.lstrip(b"\n"))  # some writers end a row with a newline


def _decoded(word: bytes) -> str:
    return word.decode("utf-8", errors="replace")


def _cut_short(path: Path, row: int, num_words: int) -> BertkitError:
    return BertkitError(f"{path} ends after {row} of {num_words} words; it is cut short: fetch it again")
