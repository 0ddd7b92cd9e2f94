"""Jobs: all done once, here or in worker processes; refusals, deaths and stops end them all."""

import sys
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import BertkitError
from bertkit.studies.jobs import Job, Queue, TimeLeft, Watch, Workers, run_jobs

FUNCTIONS = "tests.studies.job_functions"


class Notes(Watch):
    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self.shares: list[tuple[str, float]] = []

    def on_progress(self, job: Job, share: float) -> None:
        self.shares.append((job.name, share))

    def on_result(self, job: Job, result: Any) -> None:
        assert job.name not in self.results
        self.results[job.name] = result


def doubles(num: int) -> list[Job]:
    return [Job(f"job {n}", f"{FUNCTIONS}:double", {"number": n}, weight=n + 1) for n in range(num)]


@pytest.mark.parametrize("workers", [1, 2])
def test_every_job_is_done_once(workers: int) -> None:
    notes = Notes()
    assert run_jobs(doubles(5), workers, notes)
    assert notes.results == {f"job {n}": 2 * n for n in range(5)}
    assert {(f"job {n}", 0.5) for n in range(5)} <= set(notes.shares)


def test_the_heaviest_job_is_first() -> None:
    notes = Notes()
    run_jobs(doubles(3), 1, notes)
    assert list(notes.results) == ["job 2", "job 1", "job 0"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_refusal_is_told(workers: int) -> None:
    jobs = [*doubles(1), Job("bad", f"{FUNCTIONS}:refuse", {}, weight=9)]
    with pytest.raises(BertkitError, match="the file is not there"):
        run_jobs(jobs, workers, Notes())


@pytest.mark.parametrize("workers", [1, 2])
def test_a_refused_job_takes_only_those_with_it_that_wait_for_it(workers: int) -> None:
    notes, refused = Notes(), dict[str, str]()
    jobs = [*doubles(3), Job("bad", f"{FUNCTIONS}:refuse", {}, weight=9, kind="train")]
    jobs += [Job("waits", f"{FUNCTIONS}:double", {"number": 1}, after="bad")]
    jobs += [Job("next", f"{FUNCTIONS}:double", {"number": 4}, kind="train")]
    done = run_jobs(
        jobs, workers, notes, most={"train": 1}, on_refused=lambda job, why: refused.update({job.name: why})
    )
    assert done
    assert sorted(notes.results) == ["job 0", "job 1", "job 2", "next"]
    assert list(refused) == ["bad"]
    assert "the file is not there" in refused["bad"]


def test_a_worker_that_dies_is_one_line() -> None:
    with pytest.raises(BertkitError, match="dead: a worker process ended by itself"):
        run_jobs([*doubles(1), Job("dead", f"{FUNCTIONS}:die", {}, weight=9)], 2, Notes())


def test_a_worker_that_died_while_it_was_idle_is_one_line() -> None:
    ours, theirs = Pipe()
    theirs.close()
    workers = Workers(0)
    workers._connections.append(ours)
    with pytest.raises(BertkitError, match="job 0: a worker process ended by itself"):
        workers.run(Queue(doubles(1), {}), Notes(), lambda: False)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stop_leaves_jobs_in_the_middle(workers: int) -> None:
    notes = Notes()
    jobs = [Job(f"endless {n}", f"{FUNCTIONS}:go_on", {}) for n in range(2)]
    assert not run_jobs(jobs, workers, notes, should_stop=lambda: len(notes.shares) > 3)
    assert not notes.results


def test_a_job_that_is_stopped_may_save_what_it_has(tmp_path: Path) -> None:
    """It may still tell how far it is while it does."""
    notes, files = Notes(), [tmp_path / f"{n}" for n in range(2)]
    jobs = [Job(f"saving {path.name}", f"{FUNCTIONS}:save_when_told", {"path": str(path)}) for path in files]
    assert not run_jobs(jobs, 2, notes, should_stop=lambda: len({name for name, _ in notes.shares}) == 2)
    assert [path.read_text() for path in files] == ["saved", "saved"]


def test_a_signal_to_all_processes_is_a_stop_and_no_accident() -> None:
    """`timeout` and job schedulers tell the workers too, which end at once."""
    jobs = [Job(f"dying {n}", f"{FUNCTIONS}:die", {}) for n in range(2)]
    assert not run_jobs(jobs, 2, Notes(), should_stop=lambda: sys.exc_info()[0] is not None)  # not before it is seen


def test_time_left_follows_the_weights() -> None:
    light, heavy = (Job(name, "", {}, weight) for name, weight in (("light", 1.0), ("heavy", 3.0)))
    left = TimeLeft([light, heavy], started=time.monotonic() - 10.0)
    assert left.seconds() is None
    left.update(light, 1.0)
    assert left.share == 0.25
    assert left.seconds() == pytest.approx(30.0, abs=1.0)
    left.update(heavy, 1.0)
    assert left.seconds() == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_waits_for_another_and_then_goes_before_the_rest(workers: int) -> None:
    """What has been trained is measured before more is trained, so that a stop leaves little half done."""
    train = [Job(f"train {n}", f"{FUNCTIONS}:double", {"number": n}, 9.0 - n, kind="train") for n in range(4)]
    look = [Job(f"look {n}", f"{FUNCTIONS}:double", {"number": n}, 1.0, after=f"train {n}") for n in range(4)]
    notes = Notes()
    assert run_jobs([*train, *look], workers, notes, most={"train": 1}, finish_first=True)
    found = list(notes.results)
    assert sorted(found) == sorted(job.name for job in (*train, *look))
    assert all(found.index(f"train {n}") < found.index(f"look {n}") for n in range(4))
    if workers == 1:
        assert found == [f"{what} {n}" for n in range(4) for what in ("train", "look")]
        heaviest = Notes()
        run_jobs([*train, *look], 1, heaviest)
        assert list(heaviest.results)[:4] == [f"train {n}" for n in range(4)]


def test_only_so_many_of_a_kind_are_under_way() -> None:
    queue = Queue(
        [Job(f"train {n}", "", {}, kind="train") for n in range(3)] + [Job("other", "", {}, 0.5)], {"train": 2}
    )
    taken = [queue.take() for _ in range(4)]
    assert [job and job.name for job in taken] == ["train 0", "train 1", "other", None]
    assert taken[0] is not None
    queue.note_done(taken[0])
    assert (found := queue.take()) is not None
    assert found.name == "train 2"


def test_a_job_that_is_done_already_is_not_waited_for() -> None:
    queue = Queue([Job("look", "", {}, after="trained yesterday")], {})
    assert (found := queue.take()) is not None
    assert found.name == "look"


def test_nothing_is_begun_when_the_time_is_up_before() -> None:
    notes = Notes()
    assert not run_jobs(doubles(2), 2, notes, should_stop=lambda: True)
    assert not notes.results
    assert not notes.shares
    assert run_jobs([], 2, notes, should_stop=lambda: True)
