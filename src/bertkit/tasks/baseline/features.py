"""Texts -> sparse TF-IDF features of words and word pairs; for two texts also of what they share.

Counts are weighted by how rare a feature is, and every row has length 1, as is usual.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from bertkit.tasks.baseline.linear import SparseRows
from bertkit.tasks.reading.examples import TextExample

WORD = re.compile(r"\w+|[^\w\s]")
SIMILARITY_WEIGHT = 4.0  # dense features beside a row of length 1


def words_of(text: str) -> list[str]:
    """Words and signs in small letters."""
    return WORD.findall(text.lower())


def named_features(example: TextExample) -> Iterator[str]:
    """Words and pairs of words; those of a second text by other names, and those of both once more."""
    first = words_of(example.text)
    yield from _grams(first, "")
    if example.pair:
        second = words_of(example.pair)
        yield from _grams(second, "2:")
        yield from (f"both:{word}" for word in set(first) & set(second))
        yield from (f"one:{word}" for word in set(first) ^ set(second))


def _grams(words: Sequence[str], name: str) -> Iterator[str]:
    yield from (f"{name}{word}" for word in words)
    yield from (f"{name}{a} {b}" for a, b in pairwise(words))


class TfIdf:
    """Learned names and rarities of features."""

    def __init__(self, examples: Sequence[TextExample], *, least: int = 1) -> None:
        frequencies: Counter[str] = Counter()
        for example in examples:
            frequencies.update(set(named_features(example)))
        self.index = {name: place for place, name in enumerate(n for n, count in frequencies.items() if count >= least)}
        counts = np.array([frequencies[name] for name in self.index], dtype=np.float64)
        self.rarity = np.log((1 + len(examples)) / (1 + counts)) + 1.0

    @property
    def num_features(self) -> int:
        """Of words, and four of similarity."""
        return len(self.index) + len(similarities("", ""))

    def transform(self, examples: Sequence[TextExample]) -> SparseRows:
        """Rows of the features that are known."""
        values: list[float] = []
        features: list[int] = []
        starts = [0]
        for example in examples:
            found = Counter(self.index[name] for name in named_features(example) if name in self.index)
            weighted = np.array(list(found.values())) * self.rarity[list(found)]
            features += found
            values += (weighted / max(1e-12, float(np.sqrt(weighted @ weighted)))).tolist()
            if example.pair:
                shared = similarities(example.text, example.pair)
                features += range(len(self.index), len(self.index) + len(shared))
                values += [SIMILARITY_WEIGHT * value for value in shared]
            starts.append(len(values))
        return SparseRows(np.array(values), np.array(features, dtype=np.int64), np.array(starts), self.num_features)


def similarities(first: str, second: str) -> list[float]:
    """How much two texts share: words, pairs of words, groups of three letters, and length."""
    a, b = words_of(first), words_of(second)
    shared = [
        _share(set(a), set(b)),
        _share(set(pairwise(a)), set(pairwise(b))),
        _share(_trigrams(first), _trigrams(second)),
    ]
    return [*shared, min(len(a), len(b)) / max(1, len(a), len(b))]


def _trigrams(text: str) -> set[str]:
    padded = f" {' '.join(words_of(text))} "
    return {padded[place : place + 3] for place in range(len(padded) - 2)}


def _share(a: set[object] | set[str] | set[tuple[str, str]], b: set[object] | set[str] | set[tuple[str, str]]) -> float:
    return len(a & b) / max(1, len(a | b))
