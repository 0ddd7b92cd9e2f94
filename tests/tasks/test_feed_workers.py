"""The loader: batches in order from other processes, and no process left behind whatever happens."""

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from itertools import count, islice

import pytest

from bertkit.errors import BertkitError
from bertkit.tasks import feed_workers
from bertkit.tasks.feed import PretrainingFeed, held_out_feed
from bertkit.tasks.feed_workers import prefetch
from tests.tasks.test_feed import CONFIG, STORE, VOCABULARY, equal


@pytest.fixture
def feed() -> PretrainingFeed:
    return PretrainingFeed(STORE, VOCABULARY, CONFIG)


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("start_method", "num_workers"), [("spawn", 1), ("fork", 2), ("fork", 3)])
def test_batches_come_in_order_over_epochs(feed: PretrainingFeed, start_method: str, num_workers: int) -> None:
    indices = range(3, 2 * feed.epoch_size + 5, 2)
    reference = PretrainingFeed(STORE, VOCABULARY, CONFIG)
    batches = prefetch(feed, indices, num_workers, start_method=start_method)
    for index, batch in zip(indices, batches, strict=True):
        assert equal(batch, reference.micro_batch(index))


def test_without_workers_batches_are_built_here(feed: PretrainingFeed) -> None:
    assert equal(next(prefetch(feed, count(4), 0)), feed.micro_batch(4))


def test_an_endless_stream_can_be_closed_and_the_feed_still_works(feed: PretrainingFeed) -> None:
    batches = prefetch(feed, count(), 2, start_method="fork")
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert equal(
        feed.micro_batch(3 * feed.epoch_size),
        PretrainingFeed(STORE, VOCABULARY, CONFIG).micro_batch(3 * feed.epoch_size),
    )


def test_a_held_out_feed_ends(feed: PretrainingFeed) -> None:
    held_out = held_out_feed(STORE, VOCABULARY, CONFIG)
    batches = prefetch(held_out, range(held_out.epoch_size), 2, start_method="fork")
    assert sum(1 for _ in batches) == held_out.epoch_size
    with pytest.raises(BertkitError, match="no micro-batch"):
        list(prefetch(held_out, [held_out.epoch_size], 1, start_method="fork"))


def test_an_error_in_a_worker_is_raised_here(feed: PretrainingFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(index: int, buffer: object) -> None:
        raise BertkitError("the disk is gone; bring it back")

    monkeypatch.setattr(feed.arrays, "fill", fail)
    with pytest.raises(BertkitError, match="bring it back"):
        next(prefetch(feed, count(), 2, start_method="fork"))


def test_a_killed_worker_ends_the_stream_with_a_message(feed: PretrainingFeed) -> None:
    batches = prefetch(feed, count(), 2, start_method="fork")
    next(batches)
    for child in multiprocessing.active_children():
        child.kill()
    with pytest.raises(BertkitError, match="a loader process ended"):
        list(islice(batches, 3 * feed_workers.NUM_SLOTS))


def test_workers_start_without_torch() -> None:
    code = "import bertkit.tasks.feed_workers, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_interrupted_by_ctrl_c_nothing_stays() -> None:
    script = """
import os, signal, sys
from itertools import count
from tests.tasks.test_feed import *
from bertkit.tasks.feed_workers import prefetch
import multiprocessing
try:
    for turn, batch in enumerate(prefetch(PretrainingFeed(STORE, VOCABULARY, CONFIG), count(), 2, start_method="fork")):
        if turn == 3:
            os.killpg(0, signal.SIGINT)  # as a terminal does: to the whole group
except KeyboardInterrupt:
    sys.exit(7 if not multiprocessing.active_children() else 8)
"""
    run = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, start_new_session=True
    )
    assert run.returncode == 7, run.stderr
    assert "Traceback" not in run.stderr
