"""bench.models: the page of our models from runs, and from what it kept of those that are gone."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import models

from bertkit.studies.published import FIVE


def write_run(folder: Path, *, seconds: float, suite: dict[str, Any] | None = None) -> Path:
    """The journal of three steps and a look, and the suite's results."""
    folder.mkdir()
    lines: list[dict[str, Any]] = [
        {"kind": "step", "step": step, "seconds": seconds, "tokens": 1_000_000, "mlm_loss": 9.0 - step}
        for step in (1, 2, 3)
    ]
    look = {"kind": "evaluation", "step": 3, "mlm_loss": 5.5, "mlm_accuracy": 0.255, "nsp_accuracy": 0.75}
    text = "".join(json.dumps(line) + "\n" for line in [*lines, look])
    (folder / "journal.jsonl").write_text(text, encoding="utf-8")
    if suite:
        (folder / "suite").mkdir()
        (folder / "suite" / "results.json").write_text(json.dumps(suite), encoding="utf-8")
    return folder


def make_page(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> list[str]:
    monkeypatch.setattr(sys, "argv", ["bench.models", *map(str, arguments)])
    models.main()
    return Path(str(arguments[-1]), "models.md").read_text(encoding="utf-8").splitlines()


def test_a_run_becomes_its_rows_and_stays_when_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = {task: {"median": 0.5, "deviation": 0.01} for task in FIVE}
    suite = {"average_of_five": 50.0, "tasks": tasks, "BLiMP": {"accuracy": 0.812}, "word-in-context": {"skipped": "x"}}
    one = write_run(tmp_path / "one", seconds=60.0, suite=suite)
    lines = make_page(monkeypatch, f"one={one}", "--seconds", "one=240", "--remark", "one=by hand", "-o", tmp_path)
    assert "| one | 4.0 | 3 | 0.00 | 0.02 | 5.500 | 25.5 | 75.0 |" in lines
    assert "one: by hand" in lines
    assert "| **one** |" + " 50.0 ± 1.0 |" * 5 + " **50.0** |" in lines
    assert "| one | 81.2 | - | - | - |" in lines
    assert "| one | 3 | 3.0 | 0.00 | 5.500 | 25.5 | 75.0 |" in lines
    (one / "journal.jsonl").unlink()
    two = write_run(tmp_path / "two", seconds=120.0)
    both = make_page(monkeypatch, f"two={two}", "-o", tmp_path)
    assert set(lines) < set(both)
    assert "| **two** |" + " - |" * 6 in both
    picture = (tmp_path / models.PICTURE).read_bytes()
    assert make_page(monkeypatch, "-o", tmp_path) == both
    assert (tmp_path / models.PICTURE).read_bytes() == picture
    again = make_page(monkeypatch, f"one={write_run(tmp_path / 'new', seconds=1.0)}", "-o", tmp_path)
    assert "one: by hand" not in again
    assert "| one | 0.1 | 3 | 0.00 | 1.00 | 5.500 | 25.5 | 75.0 |" in again


def test_a_folder_without_steps_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "journal.jsonl").touch()
    with pytest.raises(SystemExit, match="has no steps in its journal"):
        make_page(monkeypatch, f"one={tmp_path}", "-o", tmp_path)
    with pytest.raises(SystemExit, match="NAME=FOLDER"):
        make_page(monkeypatch, "one", "-o", tmp_path)


def test_the_page_in_docs_is_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = Path(models.__file__).parents[1] / "docs"
    (tmp_path / models.KEPT).write_bytes((docs / models.KEPT).read_bytes())
    make_page(monkeypatch, "-o", tmp_path)
    assert (tmp_path / models.PAGE).read_text(encoding="utf-8") == (docs / models.PAGE).read_text(encoding="utf-8")
