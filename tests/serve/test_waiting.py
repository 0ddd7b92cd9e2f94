"""Who is served next: limits in tokens, work of one kind, short before long, nobody passed for ever."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.serve.waiting import Batch, Item, Ticket, WaitingRoom, length_class, turn_of

BUDGET = 100


def wait(room: WaitingRoom, turn: float, *lengths: int, work: str = "embed") -> list[Item]:
    """A request of items with these lengths."""
    ticket = Ticket(turn)
    items = [Item(ticket, place, work, None, length) for place, length in enumerate(lengths)]
    for item in items:
        room.add(item)
    return items


def take(room: WaitingRoom) -> list[int]:
    batch = room.take()
    assert batch is not None
    return [item.num_tokens for item in batch.items]


def test_a_batch_is_limited_by_tokens_not_by_rows() -> None:
    room = WaitingRoom(BUDGET)
    wait(room, 0, *[10] * 25)
    assert [len(take(room)) for _ in range(3)] == [10, 10, 5]
    assert room.take() is None
    wait(room, 0, 90, 90)
    assert [len(take(room)) for _ in range(2)] == [1, 1]


def test_more_than_a_batch_goes_by_itself() -> None:
    room = WaitingRoom(BUDGET)
    wait(room, 0, 5000)
    wait(room, 1, 10)
    assert take(room) == [5000]
    assert take(room) == [10]


def test_only_one_kind_of_work_a_batch() -> None:
    room = WaitingRoom(BUDGET)
    wait(room, 0, 10, work="embed")
    wait(room, 1, 10, work="predict")
    wait(room, 2, 10, work="embed")
    assert [take(room), take(room)] == [[10, 10], [10]]


def test_alike_lengths_come_together() -> None:
    room = WaitingRoom(BUDGET)
    for turn in range(4):
        wait(room, turn, 10, 80)
    assert sorted(take(room)) == [10, 10, 10, 10]
    assert take(room) == [80]


def test_short_ones_pass_long_ones_and_none_is_passed_for_ever() -> None:
    long, short, later = (turn_of(when, size, BUDGET, 2.0) for when, size in ((0, 800), (0.5, 10), (2.5, 10)))
    assert short < long < later
    assert turn_of(0, 10**9, BUDGET, 2.0) == 2.0


def test_who_leaves_is_not_served_and_frees_its_room() -> None:
    room = WaitingRoom(BUDGET)
    gone = wait(room, 0, 10, 20)
    wait(room, 1, 30)
    room.leave(gone[0].ticket, gone)
    assert (room.num_items, room.num_tokens) == (1, 30)
    assert take(room) == [30]
    assert room.take() is None


def test_what_killed_a_worker_goes_alone() -> None:
    room = WaitingRoom(BUDGET)
    _, (second,), _ = (wait(room, turn, 10) for turn in range(3))
    second.alone = True
    batches = [room.take(), room.take(), room.take()]
    found = [batch.items for batch in batches if isinstance(batch, Batch)]
    assert [second] in found
    assert sorted(len(items) for items in found) in ([1, 2], [1, 1, 1])


def test_those_who_left_are_forgotten() -> None:
    room = WaitingRoom(BUDGET)
    for turn in range(3000):
        items = wait(room, turn, 7)
        room.leave(items[0].ticket, items)
    assert sum(len(heap) for lengths in room._heaps.values() for heap in lengths.values()) <= 1001


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 100), st.lists(st.integers(1, 150), min_size=1, max_size=5), st.booleans(), st.booleans()
        ),
        max_size=20,
    )
)
def test_everyone_who_stays_is_served_once(requests: list[tuple[float, list[int], bool, bool]]) -> None:
    room = WaitingRoom(BUDGET)
    staying: list[Item] = []
    for turn, lengths, leaves, other in requests:
        items = wait(room, turn, *lengths, work="a" if other else "b")
        if leaves:
            room.leave(items[0].ticket, items)
        else:
            staying += items
    served: list[Item] = []
    while batch := room.take():
        assert len(batch.items) == 1 or batch.num_tokens <= BUDGET
        assert len({item.work for item in batch.items}) == 1
        first = min(item.ticket.turn for item in staying if item not in served)
        assert min(item.ticket.turn for item in batch.items) == first
        served += batch.items
    assert len(served) == len(staying)
    assert set(map(id, served)) == set(map(id, staying))
    assert (room.num_items, room.num_tokens) == (0, 0)


@given(st.integers(1, 10_000))
def test_one_class_of_length_is_narrow(length: int) -> None:
    assert length_class(length) <= length_class(length + 1)
    assert length_class(2 * length) > length_class(length)
