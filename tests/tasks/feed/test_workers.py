"""The loader: batches in order from other processes, and no process left behind whatever happens."""

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import BertkitError
from bertkit.tasks.feed import processes as feed_processes
from bertkit.tasks.feed.arrays import ArrayFeed
from bertkit.tasks.feed.pretraining import PretrainingFeed, held_out_feed
from bertkit.tasks.feed.workers import BatchLoader, prefetch
from tests.tasks.feed.test_pretraining import CONFIG, STORE, VOCABULARY, equal

ROOT = Path(__file__).parents[3]


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
    def fail(self: object, index: int, buffer: object) -> None:
        raise BertkitError("the disk is gone; bring it back")

    monkeypatch.setattr(type(feed.arrays), "fill", fail)
    with pytest.raises(BertkitError, match="bring it back"):
        next(prefetch(feed, count(), 2, start_method="fork"))


def test_a_killed_worker_ends_the_stream_with_a_message(feed: PretrainingFeed) -> None:
    batches = prefetch(feed, count(), 2, start_method="fork")
    next(batches)
    for child in multiprocessing.active_children():
        child.kill()
    with pytest.raises(BertkitError, match="a loader process ended"):
        list(islice(batches, 3 * feed_processes.NUM_SLOTS))


def test_workers_start_without_torch() -> None:
    code = "import bertkit.tasks.feed.workers, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_numbers_may_be_asked_for_in_any_order_counted_and_forgotten(feed: PretrainingFeed) -> None:
    loader = BatchLoader(feed, 2, start_method="fork")
    reference = PretrainingFeed(STORE, VOCABULARY, CONFIG)
    many = range(3 * feed_processes.NUM_SLOTS)  # more than there are slots
    for index in many:
        loader.ask_counts(index) if index % 3 == 0 else loader.ask(index)
    for index in reversed(many):
        assert loader.counts(index) == reference.counts(index)
        assert equal(loader.take(index), reference.micro_batch(index))  # what was only counted is built here
    loader.ask(100)
    loader.ask(101)
    loader.forget()
    loader.ask(101)
    assert equal(loader.take(101), reference.micro_batch(101))
    loader.close()
    loader.close()  # twice does no harm


def test_a_killed_parent_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    script = """
if __name__ == "__main__":
    import multiprocessing, time
    from tests.tasks.feed.test_pretraining import CONFIG, STORE, VOCABULARY, PretrainingFeed
    from bertkit.tasks.feed.workers import BatchLoader
    loader = BatchLoader(PretrainingFeed(STORE, VOCABULARY, CONFIG), 2)
    loader.ask(0)
    loader.take(0)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    time.sleep(60)
"""
    program = tmp_path / "program.py"
    program.write_text(script, encoding="utf-8")
    folder = tmp_path / "temporary"
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, str(program)], env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(children) == 3
        assert list(folder.glob("bertkit-feed-*"))
        parent.kill()
    deadline = time.monotonic() + 30
    while (any(map(is_running, children)) or list(folder.glob("bertkit-feed-*"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, children))
    assert not list(folder.glob("bertkit-feed-*"))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_interrupted_by_ctrl_c_nothing_stays() -> None:
    script = """
import os, signal, sys
from itertools import count
from tests.tasks.feed.test_pretraining import *
from bertkit.tasks.feed.workers import prefetch
import multiprocessing
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background begin with it ignored
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


def test_epochs_of_a_few_micro_batches_outlive_the_parents_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(CONFIG, tokens_per_batch=100_000)
    reference, feed = (PretrainingFeed(STORE, VOCABULARY, few) for _ in range(2))
    assert feed.epoch_size < feed_processes.NUM_SLOTS
    fill = ArrayFeed.fill

    def fill_slowly(self: ArrayFeed, index: int, buffer: Any) -> Any:
        time.sleep(0.03)  # so that the parent has removed an epoch's folder before a worker looks for it
        return fill(self, index, buffer)

    monkeypatch.setattr(ArrayFeed, "fill", fill_slowly)
    for index, batch in enumerate(prefetch(feed, range(20), 2, start_method="fork")):
        assert equal(batch, reference.micro_batch(index))


def test_an_epoch_that_is_over_may_be_asked_for_again() -> None:
    few = replace(CONFIG, tokens_per_batch=100_000)
    reference, feed = (PretrainingFeed(STORE, VOCABULARY, few) for _ in range(2))
    loader = BatchLoader(feed, 1, start_method="fork")
    for index in (*range(6 * feed.epoch_size), 1, 0):
        loader.ask(index)
        assert equal(loader.take(index), reference.micro_batch(index))
    loader.close()
