"""The demo with bundled models, on toy ones: every figure is the models' own, and held-out sentences stay held out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import bertkit
from bertkit import bundled
from bertkit.demo import tour
from bertkit.demo.tour import HELD_OUT, PAIR_TEXTS, PASSAGE, TRAIN, TourConfig, sample_sentences
from bertkit.errors import BertkitError
from bertkit.inference.fresh import untrained
from bertkit.inference.words import EXAMPLES
from bertkit.pages.demo_tour import MarkedText, TourReport, tour_page
from bertkit.pages.finetuning import Mark
from tests.cli.running import run, run_json
from tests.pages.reading import assert_self_contained
from tests.pages.test_browser import ask
from tests.pages.test_pages import HOSTILE

SIZES = {"hidden_size": 32, "intermediate_size": 64, "max_positions": 256, "initializer_range": 0.3}
SETTINGS = {"learning_rate": 5e-3, "batch_size": 16, "epochs": 2, "log_every": 4, "max_length": 64}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Toy models under the bundled names."""
    place = tmp_path_factory.mktemp("bundled")
    labels: dict[str, Any] = {"labels": ("negative", "positive")}
    untrained(0, **SIZES).save(place / "small-en", dtype=torch.float16)
    untrained(1, **SIZES, heads=("pooler", "classifier"), **labels).save(place / "sentiment-en", layout="int8")
    untrained(2, **SIZES, heads=("tagger",), labels=("O", "B-PER", "I-PER")).save(place / "entities-en", layout="int8")
    untrained(3, **SIZES, heads=("span",)).save(place / "answers-en", layout="int8")
    return place


@pytest.fixture
def _here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "HERE", home)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def told(home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TourReport]:
    out = tmp_path_factory.mktemp("out") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled, "HERE", home)
        config = TourConfig(settings=SETTINGS)
        used = tour.use_models(config)
        return out, tour.write_tour(out, used, tour.teach(config, out))


@pytest.mark.usefixtures("_here")
def test_what_is_shown_is_what_the_models_say(told: tuple[Path, TourReport]) -> None:
    used = told[1].used
    encoder = bertkit.load("small-en", device="cpu")
    filled = encoder.fill_mask(used.blanks[0].text)[0].candidates
    assert [guess.token for guess in used.blanks[0].guesses] == [one.token for one in filled]
    assert [pair.p_next for pair in used.next_sentence] == pytest.approx(encoder.next_sentences(PAIR_TEXTS).tolist())
    assert [use["sentence"] for use in used.words["uses"]] == [example.sentence for example in EXAMPLES]
    _, same_word, same_sense = used.words["contextual"]["cosines"][0]
    assert any("has not turned" in note for note in used.words["notes"]) == (same_word > same_sense)
    assert all(PASSAGE[one.start : one.end] == one.text != "" for one in used.answers)
    assert [model.name for model in used.models] == ["small-en", "answers-en", "entities-en"]
    for model in used.models:
        assert model.megabytes == pytest.approx(bundled.size_of(model.name) / 1e6)
    for text in used.entities:
        assert {mark.label for mark in text.marks} <= {"PER"}
        assert all(0 <= mark.start < mark.end <= len(text.text) for mark in text.marks)


def test_held_out_sentences_play_no_part_in_training(told: tuple[Path, TourReport]) -> None:
    out, report = told
    taught, train, held_out = report.taught, sample_sentences(TRAIN), sample_sentences(HELD_OUT)
    assert taught.num_train + taught.num_dev == len(train) == 402
    assert [(one.text, one.label) for one in taught.judged] == [(one.text, one.label) for one in held_out]
    assert not {one.text for one in train} & {one.text for one in held_out}
    said = bertkit.load(out / "sentiment").predict([one.text for one in held_out])
    assert [one.said for one in taught.judged] == [one.label for one in said]
    rightly = sum(one.said == one.label for one in taught.judged)
    assert taught.accuracy == rightly / len(held_out)  # an untrained encoder may not learn more than chance
    assert set(taught.others) == {"TF-IDF with logistic regression", "sentiment-en, as it comes"}
    assert taught.losses[-1].loss < taught.losses[0].loss
    assert len(taught.evaluations) == 2


def test_the_page_holds_every_figure(told: tuple[Path, TourReport]) -> None:
    out, report = told
    page = assert_self_contained((out / "index.html").read_text(encoding="utf-8"))
    assert page.data == json.loads(json.dumps(report.to_json()))


def test_the_page_in_a_browser(told: tuple[Path, TourReport], tmp_path: Path) -> None:
    report = told[1]
    marked = MarkedText("😀 " + HOSTILE, [Mark(2, 10, "ORG")])
    used = report.used.__class__(**{**report.used.__dict__, "entities": [marked]})
    page = tour_page(TourReport(used, report.taught, report.versions))
    assert HOSTILE not in page
    script = """
        const text = (id) => document.getElementById(id).textContent;
        return {verdict: text('verdict'), names: text('entities'), mark: document.querySelector('#entities mark').firstChild.textContent,
            charts: document.querySelectorAll('svg.curve').length, blanks: document.querySelectorAll('#blanks h3').length,
            cosines: document.querySelectorAll('#contextual td').length, rows: document.querySelectorAll('#judged tbody tr').length,
            heads: document.querySelectorAll('.heads button').length};
    """
    found = ask(page, script, tmp_path)["answer"]
    assert f"{100 * report.taught.accuracy:.1f} %" in found["verdict"]
    assert found["names"] == "😀 " + HOSTILE[:8] + "ORG" + HOSTILE[8:]
    assert found["mark"] == HOSTILE[:8]
    assert (found["charts"], found["blanks"], found["cosines"], found["rows"]) == (2, len(used.blanks), 9, 12)
    assert found["heads"] > 0


@pytest.mark.usefixtures("_here")
def test_the_command_takes_the_bundled_models(tmp_path: Path) -> None:
    shown, _ = run("demo", "--out", str(tmp_path / "demo"))
    for part in ("question about a paragraph", "Marie Curie", "P(IsNext)", "100 held-out sentences", "index.html"):
        assert part in shown
    assert (tmp_path / "demo" / "index.html").is_file()
    assert (tmp_path / "demo" / "sentiment" / "model.safetensors").is_file()


def test_without_bundled_models_it_trains_from_scratch_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled, "HERE", tmp_path / "empty")
    _, notes = run("demo", "--out", str(tmp_path), "--steps", "2")
    assert "not in this copy of bertkit: small-en, sentiment-en, entities-en, answers-en" in notes
    assert (tmp_path / "model" / "model.safetensors").is_file()
    assert run_json("demo", "--from-scratch", "--out", str(tmp_path / "two"), "--steps", "2")["num_steps"] == 2


def test_a_model_of_other_labels_is_refused(home: Path) -> None:
    with pytest.raises(BertkitError, match="positive or negative, not O, B-PER, I-PER"):
        tour.judge(bertkit.load(home / "entities-en"), sample_sentences(HELD_OUT))
