"""The demo: really trained, saved and loaded, every figure from its own run."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bertkit
from bertkit.cli.main import app
from bertkit.demo.scratch import MASKED_TEXTS, DemoConfig, run_demo
from bertkit.pages.demo import DemoReport

STEPS = 6


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DemoReport]:
    out = tmp_path_factory.mktemp("demo")
    return out, run_demo(out, DemoConfig(num_steps=STEPS, seed=1))


def figures(report: DemoReport) -> dict[str, object]:
    plain = report.to_json()
    del plain["seconds"]
    return json.loads(json.dumps(plain))


def test_the_saved_model_is_the_one_described(first: tuple[Path, DemoReport]) -> None:
    out, report = first
    bert = bertkit.load(out / "model", device="cpu")
    filled = bert.fill_mask(MASKED_TEXTS[0])[0].candidates
    assert [guess.token for guess in report.fill_mask[0].after] == [candidate.token for candidate in filled]
    assert report.curve[-1].heldout_mlm_loss is not None
    assert report.curve[-1].heldout_mlm_loss < report.curve[0].mlm_loss
    assert len(report.curve) == STEPS


def test_the_page_holds_the_runs_figures(first: tuple[Path, DemoReport]) -> None:
    out, report = first
    page = (out / "index.html").read_text(encoding="utf-8")
    for figure in (report.curve[-1].mlm_loss, report.unigram_loss, report.nsp_accuracy, report.seconds):
        assert re.search(re.escape(repr(figure)), page)


def test_another_seed_is_another_run_and_the_same_seed_the_same(first: tuple[Path, DemoReport], tmp_path: Path) -> None:
    _, report = first
    again = run_demo(tmp_path / "again", DemoConfig(num_steps=STEPS, seed=1))
    other = run_demo(tmp_path / "other", DemoConfig(num_steps=STEPS, seed=2))
    assert figures(again) == figures(report)
    for name in ("curve", "fill_mask", "next_sentence", "attention", "seed"):
        assert figures(other)[name] != figures(report)[name], name


def test_the_command_prints_what_it_did(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--from-scratch", "--out", str(tmp_path), "--steps", "2", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["num_steps"] == 2
    assert (tmp_path / "index.html").is_file()
