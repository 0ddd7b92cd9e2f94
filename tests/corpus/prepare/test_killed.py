"""Killed at any moment and started again, a store comes out the same; and memory does not grow with the corpus."""

import errno
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertkit.corpus.prepare import blocks as prepare_blocks
from bertkit.corpus.prepare.plan import WORK
from bertkit.corpus.prepare.run import prepare
from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.text import folders
from bertkit.tokenizer import Tokenizer
from tests.corpus.prepare.test_run import TOKENS, WORDS, contents, random_corpus, write_corpus

SMALL_BLOCKS = "from bertkit.corpus.prepare import blocks as prepare_blocks; prepare_blocks.BLOCK_CHARACTERS = 5000\n"
PREPARE = """
import resource, sys
from bertkit.corpus.prepare.run import prepare
from bertkit.tokenizer import Tokenizer
tokenizer, out, workers, *files = sys.argv[1:]
prepare(files, Tokenizer.load(tokenizer), out, workers=int(workers))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
# Kills itself at the n-th rename, just before or just after it.
KILL_AT = """
import os, pathlib, signal
rename, count = pathlib.Path.replace, 0
def replace(self, target):
    global count
    count += 1
    if count == {at} and {before}:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(self, target)
    if count == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.replace = replace
"""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    Tokenizer.from_vocab(TOKENS, lowercase=True).save(folder)
    return folder


def start(tokenizer: Path, out: Path, workers: int, paths: list[Path], before: str = "") -> "subprocess.Popen[str]":
    """A process of its own that prepares a store."""
    arguments = [str(tokenizer), str(out), str(workers), *map(str, paths)]
    return subprocess.Popen([sys.executable, "-c", before + PREPARE, *arguments], stdout=subprocess.PIPE, text=True)


def test_killed_at_every_kind_of_rename(tokenizer: Path, tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "text", random_corpus(3, 2, 20))
    prepare(paths, Tokenizer.load(tokenizer), tmp_path / "whole", workers=1)
    kills = 0
    # A few renames further each time: the plan, arrays of parts, the comparison, shards, the report, the manifest.
    for at in (1, 2, 3, 9, 10, 2, 4, 3, 5, 2, 1):
        process = start(tokenizer, tmp_path / "store", 1, paths, KILL_AT.format(at=at, before=at % 2 == 0))
        process.communicate()
        kills += process.returncode == -9
    prepare(paths, Tokenizer.load(tokenizer), tmp_path / "store", workers=1)
    assert kills >= 8
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


@pytest.mark.parametrize("sizes", [[150] * 6, [1000, 5]], ids=["a file each", "one file together"])
def test_killed_at_random_moments_with_workers(tokenizer: Path, tmp_path: Path, sizes: list[int]) -> None:
    files = [random_corpus(number, 1, size)[0] for number, size in enumerate(sizes)]
    paths = write_corpus(tmp_path / "text", files)
    begun = time.perf_counter()
    process = start(tokenizer, tmp_path / "whole", 2, paths, SMALL_BLOCKS)
    process.communicate()
    took = time.perf_counter() - begun
    rng = random.Random(len(sizes))
    for _ in range(4):
        process = start(tokenizer, tmp_path / "store", 2, paths, SMALL_BLOCKS)
        time.sleep(took * rng.uniform(0.4, 1.0))
        process.kill()
        process.communicate()
    prepare(paths, Tokenizer.load(tokenizer), tmp_path / "store", workers=2)
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


def test_finished_parts_are_kept(tokenizer: Path, tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "text", random_corpus(3, 2, 20))
    # plan, then six arrays and the note of the first part
    start(tokenizer, tmp_path / "store", 1, paths, KILL_AT.format(at=9, before=False)).communicate()
    (note,) = (tmp_path / "store" / WORK).glob("part-*.json")
    written = note.stat().st_mtime_ns, note.read_bytes()
    start(tokenizer, tmp_path / "store", 1, paths, KILL_AT.format(at=9, before=False)).communicate()
    assert (note.stat().st_mtime_ns, note.read_bytes()) == written
    assert len(list((tmp_path / "store" / WORK).glob("part-*.json"))) == 2
    with pytest.raises(BertkitError, match="no finished token store"):
        TokenStore.open(tmp_path / "store")


def test_a_second_process_is_refused(tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "PATIENCE", 0.0)
    paths = write_corpus(tmp_path / "text", random_corpus(3, 1, 50))
    loaded = Tokenizer.load(tokenizer)

    def meanwhile(count: int) -> None:
        with pytest.raises(BertkitError, match="another process is at work in"):
            prepare(paths, loaded, tmp_path / "store", workers=1)

    prepare(paths, loaded, tmp_path / "store", progress=meanwhile, workers=1)


def test_a_full_disk_is_told_in_one_line_and_the_next_start_goes_on(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_corpus(tmp_path / "text", random_corpus(3, 2, 20))
    loaded = Tokenizer.load(tokenizer)
    prepare(paths, loaded, tmp_path / "whole", workers=1)
    for allowed in (3, 9, 20, 40):
        left = iter(range(allowed))

        def sync(handle: int, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("bertkit.corpus.store_files.os.fsync", sync)
            with pytest.raises(BertkitError, match="No space left on device; start again"):
                prepare(paths, loaded, tmp_path / "store", workers=1)
    prepare(paths, loaded, tmp_path / "store", workers=1)
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


@pytest.mark.parametrize("sizes", [[300] * 6, [2000]], ids=["a file each", "one file together"])
def test_a_killed_worker_is_told_and_the_next_start_goes_on(
    tokenizer: Path, tmp_path: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_blocks, "BLOCK_CHARACTERS", 5000)
    paths = write_corpus(tmp_path / "text", [random_corpus(n, 1, size)[0] for n, size in enumerate(sizes)])
    loaded = Tokenizer.load(tokenizer)
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remember(*arguments: Any, **settings: Any) -> "subprocess.Popen[bytes]":
        started.append(popen(*arguments, **settings))
        return started[-1]

    with monkeypatch.context() as patch:
        patch.setattr("bertkit.corpus.prepare.pool.subprocess.Popen", remember)
        with pytest.raises(BertkitError, match="a worker process ended by itself"):
            prepare(paths, loaded, tmp_path / "store", progress=lambda count: started[0].kill(), workers=2)
    assert all(process.returncode is not None for process in started)
    prepare(paths, loaded, tmp_path / "store", workers=2)
    prepare(paths, loaded, tmp_path / "whole", workers=1)
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


def test_memory_does_not_grow_with_the_corpus(tokenizer: Path, tmp_path: Path) -> None:
    rng = random.Random(1)
    lines = [" ".join(rng.choices(WORDS, k=14)) + "." for _ in range(500)]
    peaks = {}
    for megabytes in (6, 60):
        path = tmp_path / f"{megabytes}.txt"
        with path.open("w") as file:
            number = 0
            while file.tell() < megabytes * 1_000_000:
                # Numbered, so that every paragraph has a key of its own; five paragraphs a document.
                file.writelines(
                    f"{number + at} {line} {line}\n" + "\n" * (at % 5 == 0) for at, line in enumerate(lines)
                )
                number += len(lines)
        process = start(tokenizer, tmp_path / f"store-{megabytes}", 2, [path])
        peaks[megabytes] = [int(kibibytes) / 1024 for kibibytes in process.communicate()[0].split()]
        assert process.returncode == 0
        report = json.loads((tmp_path / f"store-{megabytes}" / "report.json").read_text())
        assert report["num_duplicates"] == 0
        assert report["read"]["num_characters"] > megabytes * 900_000
    assert peaks[60][0] < peaks[6][0] + 64  # MiB; the parent
    assert peaks[60][1] < min(peaks[6][1] + 64, 256)  # the largest worker
