"""`bertkit tag`: the entities of the Python call, in colour and as JSON."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from tests.cli.running import refusal, rows, run, run_json

TEXT, OTHER = "Wolfgang lives in Berlin.", "The dog [red] sleeps :smile:"


@pytest.fixture(scope="module")
def tagger() -> Bert:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "initializer_range": 0.5, "max_positions": 32}
    return untrained(1, heads=("tagger",), labels=("O", "B-PER", "I-PER", "B-LOC"), **sizes)


@pytest.fixture(scope="module")
def model(tagger: Bert, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tagger.save(tmp_path_factory.mktemp("tagger")))


def test_the_text_is_shown_with_its_entities(tagger: Bert, model: str) -> None:
    shown, notes = run("tag", "-m", model, "--device", "cpu", TEXT)
    entities = tagger.tag(TEXT).entities
    assert entities
    expected = [[e.text, e.kind, f"{e.start}-{e.end}", f"{e.confidence:.4f}"] for e in entities]
    assert rows(shown) == expected
    for entity in entities:
        assert f"{entity.text} {entity.kind}" in shown.splitlines()[0]
    assert notes == ""


def test_json_has_every_text(tagger: Bert, model: str) -> None:
    found = run_json("tag", "-m", model, "--device", "cpu", TEXT, OTHER)
    assert [one["text"] for one in found] == [TEXT, OTHER]
    for one, expected in zip(found, tagger.tag([TEXT, OTHER]), strict=True):
        plain = json.loads(json.dumps(asdict(expected)))
        for entity in plain["entities"]:
            entity["confidence"] = pytest.approx(entity["confidence"], rel=1e-4)
        assert one == plain


def test_a_file_is_read_line_by_line(model: str, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n\n{OTHER}\n", encoding="utf-8")
    found = run_json("tag", "-m", model, "--device", "cpu", "-f", str(tmp_path / "texts.txt"))
    assert [one["text"] for one in found] == [TEXT, "", OTHER]
    shown, _ = run("tag", "-m", model, "--device", "cpu", "-f", str(tmp_path / "texts.txt"))
    assert len(shown.splitlines()) == 3


def test_refusals(model: str, folder: Path) -> None:
    assert "no tagger" in refusal("tag", "-m", str(folder), TEXT)
    assert "give texts as arguments or a file" in refusal("tag", "-m", model)
    assert "the limit is 32" in refusal("tag", "-m", model, "--long", "error", "dog " * 60)
    assert "long is 'cut'" in refusal("tag", "-m", model, "--long", "cut", TEXT)


def test_the_help_has_an_example() -> None:
    assert 'bertkit tag -m entities-en "Marie Curie was born in Warsaw."' in " ".join(run("tag", "--help")[0].split())


def test_predict_adds_a_column_of_tags(tagger: Bert, model: str, tmp_path: Path) -> None:
    source, target = tmp_path / "in.conll", tmp_path / "out.conll"
    source.write_text("Wolfgang O\nlives O\n\nThe O\ndog O\n", encoding="utf-8")
    _, notes = run("predict", "-m", model, "--device", "cpu", str(source), "-o", str(target))
    assert "2 rows written" in notes
    tags = [tag for one in tagger.tag([["Wolfgang", "lives"], ["The", "dog"]]) for tag in one.tags]
    lines = [line for line in target.read_text().splitlines() if line]
    assert [line.split()[-1] for line in lines] == tags
    assert [line.rpartition(" ")[0] for line in lines] == ["Wolfgang O", "lives O", "The O", "dog O"]
