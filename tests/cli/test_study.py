"""`bertkit study` as people type it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertkit.cli.main import app
from bertkit.cli.study import said_command
from tests.cli.running import refusal, run_json
from tests.studies.study.conftest import RECIPE
from tests.studies.toy_data import make_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    make_data(folder / "data")
    (folder / "toy.toml").write_text(RECIPE, encoding="utf-8")
    return folder


def test_a_study_shows_its_table_and_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTKIT_CACHE", str(folder / "cache"))
    command = ["study", "direction", "--data", str(folder / "data"), "-o", str(folder / "out"), "--device", "cpu"]
    command += ["--recipe", str(folder / "toy.toml"), "--workers", "1", "--set", "scale.minutes.tasks=[]"]
    stopped = CliRunner().invoke(app, [*command, "--minutes", "1e-9"], catch_exceptions=False)
    assert stopped.exit_code == 1
    assert "2 parts left; the same command goes on" in stopped.output
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    assert "held-out perplexity" in done.output
    assert "left to right" in done.output
    assert "about 1 minute\n" in done.output
    assert "±" not in done.output  # of one seed
    written = CliRunner().invoke(app, ["study", "report", "-o", str(folder / "out"), "--docs", str(folder / "docs")])
    assert written.exit_code == 0
    assert (folder / "docs" / "findings.md").is_file()


def test_the_command_of_a_result_can_be_typed_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = [
        "study",
        "all",
        "--data",
        str(tmp_path / "my data"),
        "--minutes",
        "9",
        "--minutes=9",
        "-o",
        "out",
        "--json",
    ]
    assert said_command(given) == "bertkit study all --data 'my data' -o out"


def test_refusals(folder: Path) -> None:
    assert "no study is" in refusal("study", "directoin", "-o", str(folder / "x"), "--data", str(folder / "data"))
    assert "no data folder" in refusal("study", "direction", "-o", str(folder / "x"))


def test_the_report_is_json_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.studies.study.run.write_up", lambda results, docs: docs / "findings.md")
    assert run_json("study", "report", "-o", str(tmp_path)) == {"report": str(tmp_path / "findings.md")}
