"""The study of cost at toy size: every size measured in turn, devices side by side, the paper's chips beside."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import BertkitError
from bertkit.model.config import preset
from bertkit.studies.findings import compute
from bertkit.studies.findings.cost import counted
from tests.studies.findings.toy import run_toy

SIZES = "scale.minutes.options.sizes=['tiny', 'base']"
HOURS = {"tiny": 2.0, "base": 96.0}


def made_up(size: str, use: Any, device: str, progress: Any) -> dict[str, Any]:
    """Figures without measuring."""
    rates = {"tokens_per_second": 10.0, "texts_per_second": 5.0, "milliseconds": 3.0}
    notes = ["stage 1 was measured on 1 of 12 layers, scaled by FLOPs"] if size == "base" else []
    memory = {"memory_bytes": 2e9, "measured_memory_bytes": None}
    return {"size": size, "hours": HOURS[size], "notes": notes, **rates, **memory, **counted(preset(size))}


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "measure_cost", made_up)


@pytest.mark.usefixtures("_quick")
def test_hours_stand_beside_the_paper_s_chips(data: Path, tmp_path: Path) -> None:
    outcome = run_toy("compute", data, tmp_path, SIZES)
    result = outcome.result
    assert (outcome.missing, result.baseline) == ((), "base")
    assert result.values("base", "hours of the paper's 1 M steps") == (96.0, 96.0, 96.0)
    counts, beside = result.tables
    assert counts.rows[1][1] == "110.1 M"
    assert beside.rows[1] == ("base", "1,536 chip-hours", "96.0 h (4.0 days)", "16 chips")
    assert beside.rows[0][1] == "–"
    assert any("base timed on parts of a step" in note for note in result.notes)
    (said,) = result.agreement
    assert "base: 1,536 TPU chip-hours then, 4 days on CPU" in said


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(("load", "is_said"), [(1.0, False), (3.0, True)])
def test_a_busy_machine_is_said(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: float, is_said: bool
) -> None:
    monkeypatch.setattr(compute, "cpu_load", lambda: load)
    result = run_toy("compute", data, tmp_path, SIZES, seeds=1, device="cpu").result
    assert any("busy during 2 of 2 measurements (load of up to 3.0" in note for note in result.notes) == is_said


@pytest.mark.usefixtures("_quick")
def test_parts_of_another_device_stand_side_by_side(data: Path, tmp_path: Path) -> None:
    first = run_toy("compute", data, tmp_path, SIZES, seeds=1)
    other = {**made_up("tiny", None, "", None), "device": "GPU X", "repeat": 0, "seconds": 1.0, "hours": 0.5}
    (tmp_path / "parts" / "compute" / "elsewhere").mkdir()
    (tmp_path / "parts" / "compute" / "elsewhere" / "tiny-0.json").write_text(json.dumps(other))
    both = run_toy("compute", data, tmp_path, SIZES, seeds=1).result
    assert both.values("tiny", "hours of the paper's 1 M steps, GPU X") == (0.5,)
    assert len(both.measures) == 2 * len(first.result.measures)
    assert [table.title for table in both.tables][-1] == "Beside the paper: GPU X"


@pytest.mark.usefixtures("_quick")
def test_figures_of_other_settings_are_not_mixed_in(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use(num_texts: int) -> str:
        return f"scale.minutes.options.use={{num_texts = {num_texts}, num_single = 1, rounds = 1}}"

    run_toy("compute", data, tmp_path, SIZES, use(4), seeds=1)
    monkeypatch.setitem(HOURS, "tiny", 3.0)
    result = run_toy("compute", data, tmp_path, SIZES, use(8), seeds=1).result
    assert result.values("tiny", "hours of the paper's 1 M steps") == (3.0,)
    again = run_toy("compute", data, tmp_path, SIZES, use(4), seeds=1).result
    assert again.values("tiny", "hours of the paper's 1 M steps") == (2.0,)


def test_an_unknown_size_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="did you mean 'tiny'"):
        run_toy("compute", data, tmp_path, "scale.minutes.options.sizes=['tinny']")
    with pytest.raises(BertkitError, match="names no size"):
        run_toy("compute", data, tmp_path, "scale.minutes.options.sizes=[]")
