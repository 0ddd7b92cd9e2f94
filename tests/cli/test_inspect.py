"""`bertkit inspect`: attention as a table, a picture, a page and JSON."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertkit.errors import BertkitError
from bertkit.inference.links import strongest_links
from tests.cli import running
from tests.pages.reading import assert_self_contained
from tests.pages.tiny import tiny_bert

PAIR = ["my dog is cute", "he likes playing"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bert().save(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def run(*arguments: str) -> tuple[str, str]:
    return running.run("inspect", *arguments)


def test_by_default_both_files_are_written_and_named(checkpoint: str, tmp_path: Path) -> None:
    shown, notes = run(*PAIR, "-m", checkpoint, "--device", "cpu")
    assert "wrote attention.png" in notes
    assert "wrote attention.html" in notes
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    data = assert_self_contained((tmp_path / "attention.html").read_text(encoding="utf-8")).data
    assert data["tokens"] == tiny_bert().encode(*PAIR).tokens
    assert "Strongest links" in shown
    assert "[SEP] (" not in shown


def test_named_files_and_one_head(checkpoint: str, tmp_path: Path) -> None:
    shown, _ = run(*PAIR, "-m", checkpoint, "--device", "cpu", "--layer", "2", "--head", "1", "--png", "head.png")
    assert [path.name for path in tmp_path.iterdir()] == ["head.png"]
    weights = tiny_bert().attention(*PAIR).weights[1, 0]
    assert f"{weights.max():.3f}" in shown
    run(*PAIR, "-m", checkpoint, "--device", "cpu", "--layer", "2", "--html", "page.html")
    data = assert_self_contained((tmp_path / "page.html").read_text(encoding="utf-8")).data
    assert data["layer"] == 1


def test_json_has_the_weights_and_writes_nothing(checkpoint: str, tmp_path: Path) -> None:
    expected = tiny_bert().attention(*PAIR).weights
    for arguments, part in (
        ([], expected),
        (["--layer", "2"], expected[1]),
        (["--layer", "2", "--head", "2"], expected[1, 1]),
    ):
        plain = json.loads(run(*PAIR, "-m", checkpoint, "--device", "cpu", "--json", *arguments)[0])
        np.testing.assert_allclose(plain["weights"], part, atol=1e-6)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layer", "3"], "layers 1 to 2"),
        (["--layer", "1", "--head", "0"], "heads 1 to 2"),
        (["--head", "1"], "needs --layer"),
    ],
)
def test_layers_and_heads_that_do_not_exist(checkpoint: str, arguments: list[str], message: str) -> None:
    with pytest.raises(BertkitError, match=message):
        run(*PAIR, "-m", checkpoint, "--device", "cpu", *arguments)


def test_the_strongest_links_are_the_largest_weights() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 2, 4)).astype(np.float32)
    links = strongest_links("abcd", weights, layer=2, head=1, count=3)
    assert [link.weight for link in links] == sorted(weights[1, 0].ravel().tolist(), reverse=True)[:3]
    assert all(weights[1, 0, link.from_position, link.to_position] == np.float32(link.weight) for link in links)
    inner = strongest_links("abcd", weights, ordinary=[False, True, True, False])
    assert len(inner) == 4
    assert inner[0].weight == weights[:, :, 1:3, 1:3].max()
    assert strongest_links("abcd", weights, ordinary=[False] * 4) == []
