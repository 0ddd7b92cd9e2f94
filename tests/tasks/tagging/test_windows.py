"""Windows over words: every word whole, in exactly one window's reading, and in the one with most context."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import LongTextError
from bertkit.tasks.tagging.windows import plan_windows, window_spans
from bertkit.tokenizer.fitting import Limit


def test_windows_by_hand() -> None:
    # Ten words of one piece, room for six: windows share two words at most.
    windows = plan_windows([1] * 10, Limit(8, "window", 2), "it")
    assert [(window.first, window.stop) for window in windows] == [(0, 6), (4, 10)]
    # Word 4 has one word to its right in the first window and nothing to its left in the second; word 5 the reverse.
    assert [window.read for window in windows] == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]


def test_words_of_several_pieces() -> None:
    sizes = [1, 3, 2, 1, 1, 4, 1]  # room for five
    assert window_spans(sizes, 5, 2) == [(0, 2), (2, 5), (4, 6), (6, 7)]
    assert window_spans(sizes, 5, 0) == [(0, 2), (2, 5), (5, 7)]


def test_a_word_longer_than_a_window_has_one_of_its_own() -> None:
    assert window_spans([1, 9, 1], 4, 1) == [(0, 1), (1, 2), (2, 3)]


def test_what_fits_is_whole() -> None:
    (window,) = plan_windows([2, 2, 2], Limit(8, "error"), "it")
    assert (window.first, window.stop, window.read) == (0, 3, (0, 1, 2))
    (window,) = plan_windows([1000], Limit(), "it")
    assert window.read == (0,)


def test_errors_and_truncation() -> None:
    with pytest.raises(LongTextError, match=r"the sentence has 9 tokens.* the limit is 8"):
        plan_windows([7], Limit(8, "error"), "the sentence")
    with pytest.raises(LongTextError, match="cannot share 6; choose a stride below 6"):
        plan_windows([1] * 9, Limit(8, "window", 6), "it")
    (window,) = plan_windows([2, 2, 3, 1], Limit(8, "truncate"), "it")
    assert (window.stop, window.read) == (2, (0, 1))


@given(st.lists(st.integers(1, 9), max_size=60), st.integers(3, 20), st.one_of(st.none(), st.integers(0, 8)))
def test_any_sentence(sizes: list[int], max_length: int, stride: int | None) -> None:
    room = max_length - 2
    if stride is not None and stride >= room:
        return
    windows = plan_windows(sizes, Limit(max_length, "window", stride), "it")
    assert sorted(word for window in windows for word in window.read) == list(range(len(sizes)))
    for window in windows:
        assert set(window.read) <= set(range(window.first, window.stop))
        assert list(window.read) == sorted(window.read)
        assert sum(min(size, room) for size in sizes[window.first : window.stop]) <= room


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.integers(5, 15), st.integers(0, 4))
def test_neighbours_share_no_more_than_asked_and_every_window_moves_on(
    sizes: list[int], room: int, shared: int
) -> None:
    spans = window_spans(sizes, room, shared)
    assert spans[0][0] == 0
    assert spans[-1][1] == len(sizes)
    for (first, stop), (next_first, next_stop) in pairwise(spans):
        assert first < next_first <= stop < next_stop
        overlap = sum(sizes[next_first:stop])
        assert overlap <= shared
        # No larger overlap was possible.
        wider = overlap + sizes[next_first - 1]
        assert wider > shared or wider + sizes[stop] > room or next_first - 1 == first


@given(st.lists(st.integers(1, 3), min_size=1, max_size=40), st.integers(6, 15), st.integers(0, 5))
def test_a_word_is_read_where_the_nearer_edge_is_farthest(sizes: list[int], max_length: int, stride: int) -> None:
    if stride >= max_length - 2 or sum(sizes) + 2 <= max_length:
        return
    spans = window_spans(sizes, max_length - 2, stride)
    windows = plan_windows(sizes, Limit(max_length, "window", stride), "it")

    def context(word: int, first: int, stop: int) -> float:
        left = float("inf") if first == 0 else sum(sizes[first:word])
        right = float("inf") if stop == len(sizes) else sum(sizes[word + 1 : stop])
        return min(left, right)

    for window in windows:
        for word in window.read:
            best = max(context(word, first, stop) for first, stop in spans if first <= word < stop)
            assert context(word, window.first, window.stop) == best


def test_what_is_cut_shares_nothing_so_a_stride_does_not_matter() -> None:
    (window,) = plan_windows([2, 2, 3, 1], Limit(8, "truncate", 100), "it")
    assert window.read == (0, 1)
