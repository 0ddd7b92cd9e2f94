"""`bertkit evaluate --suite` as people run it."""

from pathlib import Path

import pytest

from tests.cli.running import refusal, run, run_json
from tests.studies.toy_data import make_data
from tests.training.tiny_tasks import make_base


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_data(tmp_path_factory.mktemp("cli-suite") / "data")
    make_base(folder / "base")
    return folder


@pytest.fixture(autouse=True)
def _own_cache(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTKIT_CACHE", str(data / "cache"))
    monkeypatch.setenv("BERTKIT_DATA", str(data))


def test_the_suite_prints_scores_and_writes_a_report(data: Path, tmp_path: Path) -> None:
    given = ["--suite", "-m", str(data / "base"), "--recipe", str(data / "suite.toml"), "--device", "cpu"]
    chosen = ["--tasks", "sst-2,blimp", "--seeds", "1", "--limit", "8", "-o", str(tmp_path / "report")]
    out, err = run("evaluate", *given, *chosen)
    assert "SST-2 seed 0: accuracy" in err
    assert "Cut to 8 examples of each set" in err
    assert str(tmp_path / "report" / "report.html") in out
    assert "BLiMP: " in run("evaluate", *given, *chosen)[0], "what was measured before is shown too"
    found = run_json("evaluate", *given, *chosen)  # nothing is measured again
    assert list(found["tasks"]) == ["SST-2"]
    assert found["BLiMP"]["num_sets"] == 3


def test_what_is_missing_is_one_line(data: Path, tmp_path: Path) -> None:
    assert "give -o FOLDER" in refusal("evaluate", "--suite", "-m", str(data / "base"))
    assert "give --data FILE, or --suite" in refusal("evaluate", "-m", str(data / "base"))
    given = ["--suite", "-m", str(data / "base"), "-o", str(tmp_path), "--device", "cpu"]
    assert "no part 'glue'" in refusal("evaluate", *given, "--tasks", "glue")
    assert "neither tasks/ nor corpus/" in refusal("evaluate", *given, "--data", str(tmp_path))
