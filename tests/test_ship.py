"""The maker of bundled models at toy size: what it writes loads, says what was measured, and stays small."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from bench import ship as maker
from bench.ship import SETTINGS as SETTINGS_FILE
from bench.ship import Shipment, ShipSettings, parse, ship
from bench.ship_origin import Origin
from safetensors.torch import load_file

import bertkit
from bertkit.bundled import MODELS
from bertkit.errors import BertkitError
from bertkit.training.toml_text import read_toml, to_dataclass
from tests.studies.toy_data import make_data
from tests.training.tiny_tasks import make_base

SETTINGS = """
dropout = 0.1

[[models]]
name = "sentiment-en"
labels = {"no" = "negative", "yes" = "positive"}
use = 'bert.predict("w1")'
data = ["Toy texts, public domain"]
limits = ["It cannot say neutral."]
[models.setting]
name = "Toy"
task = "classification"
train = ["toy/train.tsv"]
test = "toy/dev.tsv"
metric = "accuracy"
columns = {text = "text", label = "label"}
learning_rate = 5e-3
batch_size = 8
epochs = 6
max_length = 24

[[models]]
name = "entities-en"
use = 'bert.tag("w1 w2")'
data = ["Toy tags"]
limits = ["It cannot mark dates."]
[models.setting]
name = "Toy tags"
task = "tagging"
train = ["toy/tags.txt"]
test = "toy/tags.txt"
metric = "f1"
learning_rate = 1e-2
batch_size = 4
epochs = 20
max_length = 24
long = "window"

[[models]]
name = "answers-en"
use = 'bert.answer("w1", "w2 w3")'
data = ["Toy questions"]
limits = ["It always answers."]
[models.setting]
name = "Toy questions"
task = "answering"
train = ["toy/questions.json", "toy/more-questions.json"]
test = "toy/questions.json"
metric = "f1"
columns = {skip_bad = true}
learning_rate = 1e-3
batch_size = 8
epochs = 1
max_length = 32
long = "window"
"""
WRITTEN = ("README.md", "bertkit.toml", "config.json", "model-int8.safetensors", "task.json")
RESULTS = {
    "tasks": {
        "CoLA": {
            "metric": "matthews",
            "scored_on": "dev",
            "median": 0.4321,
            "deviation": 0.0111,
            "scores": [0.4, 0.4321],
        }
    },
    "average_of_five": 71.5,
    "BLiMP": {"accuracy": 0.8123},
    "notes": ["Something to know."],
}


def make_run(folder: Path) -> Path:
    """A pre-training run's folder: model, recipe, journal, and the suite's results."""
    make_base(folder / "model", hidden_dropout=0.0, attention_dropout=0.0)
    (folder / "model" / "bertkit.toml").write_text("minutes = 20.0\n")
    lines: list[dict[str, Any]] = [
        {"kind": "step", "step": 10, "seconds": 90.0, "tokens": 4000},
        {"kind": "evaluation", "step": 10},
        {"kind": "step", "step": 20, "seconds": 60.0, "tokens": 5000},
    ]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "suite").mkdir()
    (folder / "suite" / "results.json").write_text(json.dumps(RESULTS))
    return folder


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    place = tmp_path_factory.mktemp("ship")
    make_run(place / "small")
    make_run(place / "mini")
    make_data(place / "data")
    (place / "ship.toml").write_text(SETTINGS)
    given = {"small": "small", "mini": "mini", "data": "data", "settings": "ship.toml", "out": "out"}
    return [*(part for name, path in given.items() for part in (f"--{name}", str(place / path))), "--device", "cpu"]


@pytest.fixture(scope="module")
def made(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shipment, dict[str, Any]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        shipment = parse(arguments)
        said: list[str] = []
        measured = ship(shipment, said.append)
        assert [line.partition(":")[0] for line in said] == list(MODELS)
        yield shipment, measured


def test_the_encoder_is_in_half_precision_and_nothing_is_stored_twice(made: tuple[Shipment, dict[str, Any]]) -> None:
    shipment, measured = made
    folder = shipment.out / "small-en"
    stored = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    assert not [name for name in stored if "decoder" in name]
    original, shipped = bertkit.load(shipment.small.model), bertkit.load(folder)
    assert (original.config.hidden_dropout, shipped.config.hidden_dropout) == (0.0, 0.1)
    assert shipped.fill_mask("w3 [MASK] w5")[0].candidates[0].probability == pytest.approx(
        original.fill_mask("w3 [MASK] w5")[0].candidates[0].probability, abs=1e-3
    )
    found = measured["small-en"]
    assert found["after"]["mlm_loss"] == pytest.approx(found["before"]["mlm_loss"], abs=1e-2)
    assert found["after"]["mlm_loss"] != found["before"]["mlm_loss"]


def test_the_encoders_card_says_what_was_measured(made: tuple[Shipment, dict[str, Any]]) -> None:
    shipment, measured = made
    card = (shipment.out / "small-en" / "README.md").read_text()
    loss = measured["small-en"]["after"]
    told = ["20 steps, 9,000 tokens, 2.5 minutes on one NVIDIA H200", f"| {loss['perplexity']:.3f} |"]
    told += [
        "| CoLA | matthews, dev | 43.2 | ± 1.1 over 2 seeds |",
        ": 71.5.",
        "BLiMP (67 sets): 81.2.",
        "Something to know.",
    ]
    told += ["Wikipedia", "CC BY-SA", "public domain", "OpenStax", "CC BY 4.0", "BooksCorpus", "no generator"]
    assert [part for part in told if part not in card] == []
    assert (shipment.out / "small-en" / "bertkit.toml").read_text() == "minutes = 20.0\n"


@pytest.mark.parametrize(
    ("name", "limit"), [("sentiment-en", "neutral"), ("entities-en", "dates"), ("answers-en", "always")]
)
def test_task_models_are_in_eight_bits_with_their_cards(
    name: str, limit: str, made: tuple[Shipment, dict[str, Any]]
) -> None:
    shipment, measured = made
    folder, found = shipment.out / name, measured[name]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*WRITTEN, "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    )
    card = (folder / "README.md").read_text()
    metric = next(iter(found["after"]))
    assert f"| {100 * found['before'][metric]:.2f} | {100 * found['after'][metric]:.2f} |" in card
    assert f"Both say the same of {100 * found['agreement']:.2f} %" in card
    assert limit in card
    assert "2.5 minutes" in card
    assert found["bytes"] == sum(path.stat().st_size for path in folder.iterdir())


def test_labels_have_names_and_what_was_learned_survives(made: tuple[Shipment, dict[str, Any]]) -> None:
    shipment, measured = made
    bert = bertkit.load(shipment.out / "sentiment-en")
    assert set(bert.config.labels) == {"negative", "positive"}
    assert bert.predict(["w0 w7 w9", "w1 w7 w9"])[1].label == "positive"
    assert measured["sentiment-en"]["after"]["accuracy"] > 0.8


def test_the_scores_are_those_of_the_shipped_folder(made: tuple[Shipment, dict[str, Any]]) -> None:
    shipment, measured = made
    for name, file in (("entities-en", "toy/tags.txt"), ("answers-en", "toy/questions.json")):
        columns = {"skip_bad": True} if name == "answers-en" else {}
        scores = bertkit.load(shipment.out / name).evaluate(shipment.data.task_file(file), columns=columns).scores
        assert {key: scores[key] for key in measured[name]["after"]} == pytest.approx(measured[name]["after"])


def test_engines_and_conversion_work_as_for_any_checkpoint(
    made: tuple[Shipment, dict[str, Any]], tmp_path: Path
) -> None:
    need_runtime()
    folder = made[0].out / "entities-en"
    plain, narrow = (bertkit.load(folder, engine=engine, device="cpu") for engine in ("torch", "int8"))
    assert narrow.engine == "int8"
    texts = ["w1 w2 w17 w3", "w30 w1"]
    assert [one.tags for one in narrow.tag(texts)] == [one.tags for one in plain.tag(texts)]
    bertkit.convert(folder, tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert bertkit.load(tmp_path / "out").tag(texts) == plain.tag(texts)


def need_runtime() -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def test_one_alone_leaves_the_others(made: tuple[Shipment, dict[str, Any]], arguments: list[str]) -> None:
    shipment, _ = made
    before = {path: path.stat().st_mtime_ns for path in shipment.out.rglob("*") if path.is_file()}
    ship(parse([*arguments, "--only", "small-en"]), lambda line: None)
    after = {path: path.stat().st_mtime_ns for path in shipment.out.rglob("*") if path.is_file()}
    assert {path.parent.name for path in before if after[path] != before[path]} == {"small-en"}
    assert set(after) == set(before)


def test_what_is_too_large_or_unknown_is_refused(
    made: tuple[Shipment, dict[str, Any]], arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "MOST_ALL", 1000)
    with pytest.raises(BertkitError, match=r"too large to ship: small-en 0\.0 MB"):
        maker.check_sizes(made[0].out)
    with pytest.raises(BertkitError, match="no bundled model is named 'large-en'"):
        parse([*arguments, "--only", "large-en"])
    with pytest.raises(BertkitError, match="no run and no model"):
        Origin.read(str(tmp_path))
    with pytest.raises(BertkitError, match="evaluate --suite"):
        Origin.read(str(made[0].small.model), suite=str(tmp_path / "absent.json"))


def test_the_real_settings_are_read() -> None:
    settings = to_dataclass(ShipSettings, read_toml(SETTINGS_FILE))
    assert [model.name for model in settings.models] == [name for name in MODELS if name != "small-en"]
    assert not [file for model in settings.models for file in model.setting.train if "conll" in file]
    assert "dates" in settings.models[1].limits[0]
