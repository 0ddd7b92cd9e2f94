"""The journal: lines and TensorBoard's events say the same, and a resumed run supersedes what it makes anew."""

import math
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from bertkit.model.formats.protobuf import read_fields
from bertkit.training.checkpoints import CheckpointFolder
from bertkit.training.journal import Journal, read_journal
from bertkit.training.tensorboard_file import EventFile
from tests.model.formats.peers import plain_crc
from tests.training.tiny import recipe, run

Event = dict[int, Any]


def checked(data: bytes, stored: bytes) -> bytes:
    crc = plain_crc(data)
    assert ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF == int.from_bytes(stored, "little")
    return data


def read_events(path: Path) -> list[Event]:
    """The records of an event file, by TensorFlow's description: length, its checksum, data, its checksum."""
    data, at, events = path.read_bytes(), 0, []
    while at < len(data):
        (size,) = struct.unpack("<Q", checked(data[at : at + 8], data[at + 8 : at + 12]))
        end = at + 12 + size
        events.append(dict(read_fields(checked(data[at + 12 : end], data[end : end + 4]))))
        at = end + 4
    return events


def scalars(event: Event) -> dict[str, float]:
    found = {}
    for _, value in read_fields(event[5]):
        assert isinstance(value, bytes)
        parts: Event = dict(read_fields(value))
        found[parts[1].decode()] = struct.unpack("<f", parts[2].to_bytes(4, "little"))[0]
    return found


def event_files(out: Path) -> list[Path]:
    return sorted((out / "tensorboard").glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime_ns)


def test_tensorboard_gets_what_the_journal_says(tmp_path: Path) -> None:
    made = recipe(tensorboard=True, steps=6)
    run(tmp_path / "run", made)
    (file,) = event_files(tmp_path / "run")
    version, start, *events = read_events(file)
    assert version[3] == b"brain.Event:2"
    assert start.get(2, 0) == 0
    lines = read_journal(tmp_path / "run")
    assert len(events) == len(lines)
    for event, line in zip(events, lines, strict=True):
        assert event.get(2, 0) == line["step"]
        numbers = {f"{line['kind']}/{k}": v for k, v in line.items() if k not in ("kind", "step")}
        assert scalars(event) == pytest.approx(numbers, rel=1e-6)


def test_a_resumed_run_says_where_it_goes_on(tmp_path: Path) -> None:
    made = recipe(tensorboard=True, steps=6)
    run(tmp_path / "run", made)
    shutil.copytree(tmp_path / "run", tmp_path / "part", symlinks=True)
    CheckpointFolder(tmp_path / "part" / "checkpoints")._point("last", Path("step-00000003"))
    run(tmp_path / "part", made, resume=True)
    files = {path.name: read_events(path) for path in event_files(tmp_path / "part")}
    started = [events[1] for events in files.values()]
    assert sorted(event.get(2, 0) for event in started) == [0, 4]  # what was said of step 4 and later is void
    assert all(dict(read_fields(event[7])) == {1: 1} for event in started)


@pytest.mark.parametrize("left", [0, 10])
def test_a_journal_that_was_lost_or_cut_goes_on_with_whole_lines(tmp_path: Path, left: int) -> None:
    journal = Journal(tmp_path, 0)
    for step in range(3):
        journal.write("step", {"step": step})
    position = journal.position()
    journal.close()
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:left])
    again = Journal(tmp_path, position)
    again.write("step", {"step": 3})
    again.close()
    assert [line["step"] for line in read_journal(tmp_path)][-1] == 3


def test_numbers_that_no_float32_holds_are_infinite(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.write({"large": 1e300, "small": -1e300, "none": float("nan")}, 2)
    file.close()
    (path,) = tmp_path.iterdir()
    found = scalars(read_events(path)[-1])
    assert (found["large"], found["small"]) == (math.inf, -math.inf)
    assert math.isnan(found["none"])


def test_tensorboard_itself_reads_it(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    file = EventFile(tmp_path)
    for step in range(3):
        file.write({"step/loss": 2.0 - step}, step)
    file.close()
    again = EventFile(tmp_path, 2)
    again.write({"step/loss": 7.0}, 2)
    again.close()
    reader = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in reader.Scalars("step/loss")] == [(0, 2.0), (1, 1.0), (2, 7.0)]
