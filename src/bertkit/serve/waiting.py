"""Work that waits for a worker, and which of it makes the next batch: limited by tokens, alike in length, fair.

Every request has a turn: its arrival plus a patience that grows with its tokens. The earliest turn goes first, so a
short request passes long ones that came a moment before it, and none is passed for ever. A batch is filled with work
of the same kind and about the same length, in the order of turns, then with other lengths while there is room.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any

FULL_PATIENCE = 8  # batches' worth of tokens at which a request's patience is all it can be


@dataclass(eq=False, slots=True)
class Ticket:
    """One client's request: its items share one turn, and leave together."""

    turn: float
    gone: bool = False  # cancelled, out of time or failed: its items are passed over


@dataclass(eq=False, slots=True)
class Item:
    """One text or pair that waits. `work` says with which others it may share a batch."""

    ticket: Ticket
    place: int
    work: Hashable
    content: Any
    num_tokens: int
    alone: bool = False  # its last batch killed a worker: it must not take others along again


@dataclass(frozen=True)
class Batch:
    """Items of one kind of work."""

    work: Hashable
    items: list[Item] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Of all its items."""
        return sum(item.num_tokens for item in self.items)


def turn_of(arrival: float, num_tokens: int, batch_tokens: int, patience: float) -> float:
    """When a request of so many tokens should be served; a large one may be passed for `patience` seconds."""
    return arrival + patience * min(1.0, num_tokens / (FULL_PATIENCE * batch_tokens))


def length_class(num_tokens: int) -> int:
    """Lengths of one class differ by less than a factor of about 1.4: half powers of two."""
    return (max(1, num_tokens) ** 2).bit_length()


class WaitingRoom:
    """Items by kind of work and length, each heap in the order of turns."""

    def __init__(self, batch_tokens: int) -> None:
        self.batch_tokens = batch_tokens
        self.num_tokens = 0
        self.num_items = 0
        self.num_alone = 0  # of the items, those that must be alone
        self._heaps: dict[Hashable, dict[int, list[tuple[float, int, Item]]]] = defaultdict(dict)
        self._order = count()
        self._stale = 0  # items of gone tickets that still lie in the heaps

    def add(self, item: Item) -> None:
        """Let an item wait."""
        heap = self._heaps[item.work].setdefault(length_class(item.num_tokens), [])
        heappush(heap, (item.ticket.turn, next(self._order), item))
        self.num_tokens += item.num_tokens
        self.num_items += 1
        self.num_alone += item.alone

    def leave(self, ticket: Ticket, waiting: list[Item]) -> None:
        """A request goes; `waiting` are those of its items that are still here."""
        ticket.gone = True
        self.num_tokens -= sum(item.num_tokens for item in waiting)
        self.num_items -= len(waiting)
        self.num_alone -= sum(item.alone for item in waiting)
        self._stale += len(waiting)
        if self._stale > 1000 and self._stale > self.num_items:
            self._sweep()

    def take(self, *, may_be_alone: bool = True) -> Batch | None:
        """The next batch; None when nobody waits, or when the next must be alone and may not."""
        first = min(self._heads(), default=None)
        if first is None:
            return None
        _, _, work, length = first
        batch = Batch(work)
        if self._heaps[work][length][0][2].alone:
            if not may_be_alone:
                return None
            batch.items.append(self._pop(work, length))
            return batch
        # The first item's own class, then shorter ones, which cost little, then longer ones.
        classes = sorted(self._heaps[work], key=lambda other: (other != length, other > length, abs(other - length)))
        longest = 0
        for other in classes:
            longest = self._fill(batch, work, other, longest)
        self._tidy(work)
        return batch

    def _fill(self, batch: Batch, work: Hashable, length: int, longest: int) -> int:
        """Items of one class while they fit; a batch counts as its longest item times their number, as engines count."""
        heap = self._heaps[work][length]
        while heap:
            item = heap[0][2]
            if item.ticket.gone:
                heappop(heap)
                self._stale -= 1
                continue
            would_be = max(longest, item.num_tokens)
            if item.alone or (batch.items and would_be * (len(batch.items) + 1) > self.batch_tokens):
                break
            batch.items.append(self._pop(work, length))
            longest = would_be
        return longest

    def _pop(self, work: Hashable, length: int) -> Item:
        item = heappop(self._heaps[work][length])[2]
        self.num_tokens -= item.num_tokens
        self.num_items -= 1
        self.num_alone -= item.alone
        return item

    def _heads(self) -> Iterator[tuple[float, int, Hashable, int]]:
        """The first waiting item of every heap, by turn."""
        for work, lengths in list(self._heaps.items()):
            for length, heap in lengths.items():
                while heap and heap[0][2].ticket.gone:
                    heappop(heap)
                    self._stale -= 1
                if heap:
                    turn, order, _ = heap[0]
                    yield turn, order, work, length
            self._tidy(work)

    def _tidy(self, work: Hashable) -> None:
        lengths = self._heaps[work]
        for length in [length for length, heap in lengths.items() if not heap]:
            del lengths[length]
        if not lengths:
            del self._heaps[work]

    def _sweep(self) -> None:
        """Forget all items of gone requests at once."""
        kept = [entry for lengths in self._heaps.values() for heap in lengths.values() for entry in heap]
        self._heaps.clear()
        self._stale = self.num_tokens = self.num_items = self.num_alone = 0
        for _, _, item in sorted(kept, key=lambda entry: entry[:2]):
            if not item.ticket.gone:
                self.add(item)
