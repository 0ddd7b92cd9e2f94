"""Random numbers without state: each is a hash of its key and its counter, so any of them can be had at any time.

In: keys such as (seed, epoch, document), whole arrays at once. Out: 64-bit words, uniform numbers, permutations.
The generator is SplitMix64 (Steele, Lea and Flood, 2014): word c of a key is mix(key + (c + 1) x golden). It needs a
dozen numpy operations for a whole batch, gives the same words on every machine, and passes BigCrush.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Integers = NDArray[Any] | int | np.integer[Any]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_WORD = (1 << 64) - 1


def mix(words: Words) -> Words:
    """SplitMix64's bijection of 64-bit words: every bit of the input moves half of the output's. Works in place."""
    words ^= words >> np.uint64(30)
    words *= _FIRST
    words ^= words >> np.uint64(27)
    words *= _SECOND
    words ^= words >> np.uint64(31)
    return words


def make_keys(*parts: Integers) -> Words:
    """A key for each row of the parts, which are integers or arrays of one shape: (seed, epoch, documents)."""
    # The number of parts goes in too, so that (1, 2) and (1, 2, 0) are two keys.
    keys = mix(np.full(1, len(parts), dtype=np.uint64))
    for part in parts:
        keys = mix((keys ^ _as_words(part)) + _GOLDEN)
    return keys


def draw_words(keys: Words, counters: Integers) -> Words:
    """Word number `counter` of each key; the two broadcast."""
    return mix(keys + (_as_words(counters) + np.uint64(1)) * _GOLDEN)


def draw_uniform(keys: Words, counters: Integers) -> NDArray[np.float64]:
    """A number in [0, 1) for each key and counter."""
    return as_uniform(draw_words(keys, counters))


def as_uniform(words: Words) -> NDArray[np.float64]:
    """The 53 upper bits of each word as a number in [0, 1)."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_below(uniform: NDArray[np.float64], bounds: Integers) -> NDArray[np.int64]:
    """Uniform numbers as integers from 0 to below the bounds."""
    return (uniform * bounds).astype(np.int64)


def permute(count: int, *key: int) -> NDArray[np.int64]:
    """A permutation of 0 ... count - 1 that depends on its key alone."""
    order: NDArray[np.int64] = np.argsort(draw_words(make_keys(*key), np.arange(count)), kind="stable")
    return order


def _as_words(values: Integers) -> Words:
    if isinstance(values, int):
        return np.full(1, values & _WORD, dtype=np.uint64)  # of negative and long integers, the lower 64 bits
    return np.atleast_1d(np.asarray(values)).astype(np.uint64)
