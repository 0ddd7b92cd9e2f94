"""The models that come with bertkit, as they lie in the package: small, whole, offline, and good enough to be of use.

The sentences below were written before the models were trained. Where a model's folder was left out of a copy, its tests
are skipped and say so; with BERTKIT_REQUIRE_MODELS set, an absent model is a failure.
"""

import json
import os
import socket
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertForPreTraining

import bertkit
from bertkit.bundled import MODELS, folder_of, is_here, size_of
from bertkit.inference.bert import Bert
from bertkit.inference.words import compare_words

# A text with one blank, and the words that a reader would accept there.
BLANKS = {
    "The capital of France is [MASK].": {"paris"},
    "She opened the [MASK] and walked into the room.": {"door", "doors", "gate", "curtain", "window"},
    "He drank a glass of [MASK].": {
        "water",
        "wine",
        "milk",
        "beer",
        "whisky",
        "whiskey",
        "brandy",
        "juice",
        "champagne",
    },
    "The sun rises in the [MASK].": {"east", "morning", "sky"},
    "A week has seven [MASK].": {"days"},
    "The king and the [MASK] sat on their thrones.": {"queen", "prince", "princess"},
    "They crossed the [MASK] in a small boat.": {"river", "lake", "sea", "channel", "water", "ocean", "bay", "stream"},
    "She was born in 1902 and [MASK] in 1975.": {"died", "married", "retired"},
    "The dog wagged its [MASK].": {"tail", "head", "ears"},
    "In winter the lake is covered with [MASK].": {"ice", "snow", "frost"},
    "The teacher asked the students a [MASK].": {"question", "questions", "riddle", "favor"},
    "The earth moves around the [MASK].": {"sun"},
    "He was tired and went to [MASK].": {"bed", "sleep", "rest"},
    "The patient was taken to the [MASK] by ambulance.": {"hospital", "clinic"},
    "Two of the children were boys and three were [MASK].": {"girls", "women", "daughters"},
    "Plants need water and [MASK] to grow.": {
        "light",
        "sunlight",
        "nutrients",
        "food",
        "air",
        "oxygen",
        "soil",
        "energy",
    },
}
ENOUGH = 14  # of these sixteen
STORE = "The man went to the store."
PRAISE, BLAME = "A wonderful film, warm and funny.", "A terrible film, dull and stupid."
FILES = {"config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "README.md", "bertkit.toml"}


def need(name: str) -> None:
    if not is_here(name):
        reason = f"{name} is not in src/bertkit/bundled yet; `python -m bench.ship` makes it"
        pytest.fail(reason) if os.environ.get("BERTKIT_REQUIRE_MODELS") else pytest.skip(reason)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever tries to reach another machine fails; and no folder of a model's name lies in the working folder."""

    def connect(*_: object) -> None:
        raise AssertionError("a bundled model must not need a network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def small() -> Bert:
    need("small-en")
    return bertkit.load("small-en", device="cpu")


@pytest.mark.parametrize("name", MODELS)
def test_it_loads_by_its_name_and_is_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    need(name)
    started = time.perf_counter()
    bert = bertkit.load(name, device="cpu")
    with capsys.disabled():
        print(f"\n{name}: loaded in {time.perf_counter() - started:.2f} s, {size_of(name) / 1e6:.1f} MB", end="")
    assert bert.report is not None
    assert (bert.report.broken, bert.report.ignored, bert.report.new) == ((), (), ())
    assert bert.tokenizer.lowercase
    weights = {"model.safetensors"} if name == "small-en" else {"model-int8.safetensors", "task.json"}
    assert {path.name for path in folder_of(name).iterdir()} == FILES | weights


def test_sizes() -> None:
    need("small-en")
    assert size_of("small-en") < 60e6
    assert sum(size_of(name) for name in MODELS if is_here(name)) < 100e6


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_stored_wider_than_it_must_be(name: str) -> None:
    need(name)
    file = folder_of(name) / ("model.safetensors" if name == "small-en" else "model-int8.safetensors")
    with safe_open(file, framework="pt") as stored:
        names = list(stored.keys())
        wide = [key for key in names if len(stored.get_slice(key).get_shape()) == 2]
        kinds = {stored.get_slice(key).get_dtype() for key in wide}
    assert kinds == ({"F16"} if name == "small-en" else {"I8"})
    assert not [key for key in names if "decoder.weight" in key]


@pytest.mark.parametrize("name", MODELS)
def test_the_card_names_data_licences_and_limits(name: str) -> None:
    need(name)
    card = (folder_of(name) / "README.md").read_text(encoding="utf-8")
    told = ["Wikipedia", "CC BY-SA", "Gutenberg", "public domain", "OpenStax", "CC BY 4.0", "minutes", "as shipped"]
    told += {"small-en": ["BooksCorpus", "no generator", "BLiMP"], "entities-en": ["dates", "WikiANN"]}.get(name, [])
    assert [part for part in told if part not in card] == []
    assert "a trial, not a measurement" not in card
    assert "Not measured" not in card
    assert "not recorded" not in card


def test_the_next_sentence(small: Bert) -> None:
    likely, unlikely = small.next_sentences(
        [(STORE, "He bought a gallon of milk."), (STORE, "Penguins are flightless.")]
    )
    assert likely > unlikely


@pytest.mark.xfail(strict=True, reason="not reached yet: 0.31 against 0.40 by the last layer, see docs/log.md")
def test_fair_is_nearer_to_unbiased_than_to_the_fun_fair(small: Bert) -> None:
    found = compare_words(small).contextual.cosines  # fair treatment, fun fair, unbiased
    assert found[0][2] > found[0][1]


def test_it_says_what_it_is(small: Bert) -> None:
    assert repr(small) == "<Bert: 4 layers of 512, pooler, mlm, nsp, 30,000 tokens, torch on cpu>"


def test_ordinary_blanks_are_filled(small: Bert) -> None:
    filled = small.fill_mask(list(BLANKS), top_k=5)
    said = {text: [one.token for one in masks[0].candidates] for text, masks in zip(BLANKS, filled, strict=True)}
    missed = {text: tokens for text, tokens in said.items() if not BLANKS[text] & set(tokens)}
    assert len(BLANKS) - len(missed) >= ENOUGH, json.dumps(missed, indent=1)


def test_the_reference_says_the_same(small: Bert) -> None:
    peer = BertForPreTraining.from_pretrained(folder_of("small-en"), dtype=torch.float32).eval()
    tokens = AutoTokenizer.from_pretrained(folder_of("small-en"))(STORE, "He bought milk.", return_tensors="pt")
    with torch.no_grad():
        odds = peer(**tokens).seq_relationship_logits.softmax(-1)[0, 0].item()
    assert small.next_sentence(STORE, "He bought milk.") == pytest.approx(odds, abs=1e-4)


def test_sentiment() -> None:
    need("sentiment-en")
    bert = bertkit.load("sentiment-en", device="cpu")
    assert [one.label for one in bert.predict([PRAISE, BLAME])] == ["positive", "negative"]


def test_entities() -> None:
    need("entities-en")
    found = bertkit.load("entities-en", device="cpu").tag("Angela Merkel was born in Hamburg in 1954.")
    assert ("Hamburg", "LOC") in [(one.text, one.kind) for one in found.entities]
    assert "PER" in [one.kind for one in found.entities]
    assert not [one for one in found.entities if "1954" in one.text]


def test_answers() -> None:
    need("answers-en")
    text = "The bridge was built in 1894 by Maria Lind, an engineer from Oslo."
    bert = bertkit.load("answers-en", device="cpu")
    assert bert.answer("When was the bridge built?", text).text in ("1894", "in 1894")
    assert "Maria Lind" in bert.answer("Who built the bridge?", text).text


def test_a_task_model_converts_to_what_the_ecosystem_loads(tmp_path: Path) -> None:
    need("sentiment-en")
    ours = bertkit.load("sentiment-en", device="cpu").predict(PRAISE)
    bertkit.convert("sentiment-en", tmp_path / "out")
    peer = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokens = AutoTokenizer.from_pretrained(tmp_path / "out")(PRAISE, return_tensors="pt")
    with torch.no_grad():
        shares = peer(**tokens).logits.softmax(-1)[0]
    theirs = {peer.config.id2label[index]: share.item() for index, share in enumerate(shares)}
    assert theirs == pytest.approx(dict(ours.probabilities), abs=1e-4)
