"""What goes through a socket comes out as it was, in whatever pieces it arrives."""

import socket
import threading
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.serve.frames import LENGTHS, from_frame, receive, to_frame

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
SHAPES = st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=3)


@settings(max_examples=50, deadline=None)
@given(JSON, SHAPES)
def test_there_and_back(value: Any, shapes: list[list[int]]) -> None:
    arrays = [np.random.default_rng(0).random(shape, dtype=np.float32) for shape in shapes]
    frame = to_frame({"value": value}, arrays)
    size, head_size = LENGTHS.unpack_from(frame)
    assert size == len(frame) - LENGTHS.size
    message, found = from_frame(head_size, frame[LENGTHS.size :])
    assert message == {"value": value}
    for one, other in zip(arrays, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_large_frames_arrive_in_pieces_and_the_end_is_seen() -> None:
    ours, theirs = socket.socketpair()
    big = np.arange(1_000_000, dtype=np.float32)

    def send() -> None:
        with theirs:
            theirs.sendall(to_frame({"n": 1}, [big]))
            theirs.sendall(to_frame({"n": 2})[:10])  # and dies in the middle of the next

    sender = threading.Thread(target=send)
    sender.start()
    with ours:
        got = receive(ours)
        assert got is not None
        assert got[0] == {"n": 1}
        np.testing.assert_array_equal(got[1][0], big)
        assert receive(ours) is None
    sender.join()
