"""A sample of texts that fits a budget of bytes, from any number of texts, in one pass.

What enters: texts in any order, and a seed. What leaves: those whose hash with the seed is lowest, as many as fit.
So the sample depends on the texts and the seed alone, not on their order or on how files cut them; equal texts are
drawn together (up to the budget), and the texts held out never share a text with the sample.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from bertkit.errors import BertkitError

HIGHEST = 2**64
HELD_OUT_SHARE = 200  # one text in so many is held out, where that is asked for


@dataclass
class TextSample:
    """The texts drawn so far, as UTF-8, which takes half the memory of strings; and how much was seen."""

    max_bytes: int
    seed: int = 0
    max_held_out_bytes: int = 0
    num_seen: int = 0
    num_seen_bytes: int = 0
    num_bytes: int = 0
    held_out: list[str] = field(default_factory=list)
    _heap: list[tuple[int, bytes]] = field(default_factory=list, repr=False)  # the highest hash on top
    _below: int = HIGHEST
    _held_out_bytes: int = 0

    def __post_init__(self) -> None:
        if self.max_bytes < 1:
            raise BertkitError(f"a sample of {self.max_bytes} bytes is empty; give a larger one, such as 200MB")
        self._key = self.seed.to_bytes(16, "little", signed=True)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, text: str) -> None:
        """Consider one text."""
        data = text.encode("utf-8", "surrogatepass")
        self.num_seen += 1
        self.num_seen_bytes += len(data)
        rank = int.from_bytes(blake2b(data, digest_size=8, key=self._key).digest(), "little")
        if self.max_held_out_bytes and rank >= HIGHEST - HIGHEST // HELD_OUT_SHARE:
            if self._held_out_bytes + len(data) <= self.max_held_out_bytes:
                self._held_out_bytes += len(data)
                self.held_out.append(text)
            return
        if rank >= self._below or len(data) > self.max_bytes:  # a text that never fits must not drive out others
            return
        heapq.heappush(self._heap, (-rank, data))
        self.num_bytes += len(data)
        while self.num_bytes > self.max_bytes:
            highest, dropped = heapq.heappop(self._heap)
            self._below = -highest
            self.num_bytes -= len(dropped)

    def texts(self) -> Iterator[str]:
        """The sample, in the order of its hashes."""
        for _, data in sorted(self._heap, reverse=True):
            yield data.decode("utf-8", "surrogatepass")


def sample_texts(texts: Iterable[str], max_bytes: int, seed: int = 0) -> TextSample:
    """Draw a sample from these texts."""
    sample = TextSample(max_bytes, seed)
    for text in texts:
        sample.add(text)
    return sample
