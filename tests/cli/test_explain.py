"""`bertkit explain`: tables, JSON and a page, with a checkpoint and without."""

from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import BertkitError
from tests.cli import running
from tests.pages.reading import assert_self_contained
from tests.pages.tiny import tiny_bert

PAIR = ["my dog is cute", "he likes playing"]


@pytest.fixture(autouse=True)
def _no_model_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BERTKIT_MODEL", raising=False)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bert().save(tmp_path_factory.mktemp("tiny")))


def run(*arguments: str) -> str:
    return running.run("explain", *arguments)[0]


def run_json(*arguments: str) -> Any:
    return running.run_json("explain", *arguments)


def test_the_command_that_people_type_needs_no_model(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    shown = run(*PAIR, "--mask", "--seed", "1", "--html", str(page))
    for expected in ("untrained", "[MASK]", "[CLS]", "Next sentence", "MLM", "NSP", "total"):
        assert expected in shown
    data = assert_self_contained(page.read_text(encoding="utf-8")).data
    assert f"{data['losses']['total']:.4f}" in shown
    assert f"{data['next_sentence']['p_next']:.4f}" in shown
    assert "untrained" in page.read_text(encoding="utf-8")


def test_json_equals_the_page_and_names_the_model(checkpoint: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    plain = run_json(*PAIR, "--mask", "--model", checkpoint, "--html", str(page))
    assert plain["model"] == checkpoint
    assert plain["untrained"] is False
    data = assert_self_contained(page.read_text(encoding="utf-8")).data
    assert data["masking"] == plain["masking"]
    assert data["losses"] == plain["losses"]
    assert "untrained" not in page.read_text(encoding="utf-8")


def test_the_model_may_come_from_the_environment(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTKIT_MODEL", checkpoint)
    assert run_json(*PAIR)["model"] == checkpoint


def test_seed_and_label_matter(checkpoint: str) -> None:
    chosen = {
        choice["position"]
        for seed in range(6)
        for choice in run_json(*PAIR, "--mask", "--seed", str(seed), "-m", checkpoint)["masking"]["choices"]
    }
    assert len(chosen) > 1
    first, second = (run_json(*PAIR, *label, "-m", checkpoint)["next_sentence"] for label in ([], ["--not-next"]))
    assert first["p_next"] == second["p_next"]
    assert first["loss"] != second["loss"]


def test_without_mask_or_pair_the_rest_is_shown(checkpoint: str) -> None:
    shown = run("my dog is cute", "-m", checkpoint)
    assert "dog" in shown
    assert "MLM because masking was not asked for" in shown
    assert "One text alone" in shown


def test_a_place_that_cannot_be_written(checkpoint: str, tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="cannot write"):
        run(*PAIR, "-m", checkpoint, "--html", str(tmp_path / "missing" / "page.html"))
