"""`bertkit info`: what a checkpoint is, counted on the model itself."""

from pathlib import Path
from typing import Any

import pytest

from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from bertkit.model import BertModel, preset
from bertkit.tokenizer import Tokenizer
from tests.cli.running import refusal, rows, run, run_json


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bert, str]:
    bert = untrained(0)
    return bert, str(bert.save(tmp_path_factory.mktemp("tiny")))


def table(model: str) -> dict[str, str]:
    return {row[0]: row[1] for row in rows(run("info", "-m", model)[0])}


def count(bert: Bert) -> int:
    return sum(parameter.numel() for parameter in bert.model.parameters())


def test_the_table(tiny: tuple[Bert, str]) -> None:
    bert, model = tiny
    assert table(model) == {
        "size": "tiny (2 layers, 128 hidden, 2 heads)",
        "parameters": f"{count(bert):,}",
        "precision": "float32",
        "heads": "pooler, mlm, nsp",
        "labels": "none",
        "longest input": "512 tokens",
        "vocabulary": f"{bert.tokenizer.vocab_size:,} pieces, uncased",
    }
    shown, notes = run("info", "-m", model)
    assert "read model.safetensors (safetensors, float32): 46 tensors" in shown
    assert notes == ""


def test_json(tiny: tuple[Bert, str]) -> None:
    bert, model = tiny
    plain = run_json("info", "-m", model)
    assert plain["size"] == "tiny"
    assert plain["parameters"] == count(bert)
    assert plain["dtype"] == "float32"
    assert plain["lowercase"] is True
    assert plain["vocab_size"] == bert.tokenizer.vocab_size
    assert plain["config"]["heads"] == ["pooler", "mlm", "nsp"]
    assert plain["config"]["num_layers"] == 2
    assert any("model.safetensors" in line for line in plain["report"])


def test_a_cased_tagger_in_half_precision(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Berlin", "in"], lowercase=False)
    changes: dict[str, Any] = {"heads": ("tagger",), "labels": ("O", "B-LOC"), "max_positions": 64}
    bert = Bert(BertModel(preset("mini", vocab_size=7, **changes)).half(), tokenizer)
    shown = table(str(bert.save(tmp_path)))
    assert shown["size"] == "mini (4 layers, 256 hidden, 4 heads)"
    assert shown["parameters"] == f"{count(bert):,}"
    assert shown["precision"] == "float16"
    assert shown["heads"] == "tagger"
    assert shown["labels"] == "O, B-LOC"
    assert shown["longest input"] == "64 tokens"
    assert shown["vocabulary"] == "7 pieces, cased"
    assert "note: no pooler in this checkpoint" in run("info", "-m", str(tmp_path))[0]


def test_a_left_to_right_model_is_told(tmp_path: Path) -> None:
    model = BertModel(preset("tiny", vocab_size=untrained(0).tokenizer.vocab_size, is_causal=True))
    assert table(str(Bert(model, untrained(0).tokenizer).save(tmp_path)))["reads"] == "left to right"


def test_a_shape_of_its_own(folder: Path) -> None:
    assert table(str(folder))["size"] == "custom (4 layers, 32 hidden, 2 heads)"


@pytest.mark.parametrize("name", ["my[red]model", "my:dog:model"])
def test_a_name_is_shown_as_it_is(
    name: str, tiny: tuple[Bert, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny[0].save(tmp_path / name).parent)
    assert name in run("info", "-m", name)[0]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_damaged_files_are_named(name: str, tiny: tuple[Bert, str], tmp_path: Path) -> None:
    path = tiny[0].save(tmp_path / "model") / name
    path.write_bytes(path.read_bytes()[:-100])
    assert name in refusal("info", "-m", str(path.parent))


def test_no_tokenizer_beside_the_weights(tiny: tuple[Bert, str], tmp_path: Path) -> None:
    saved = tiny[0].save(tmp_path / "model")
    for name in ("vocab.txt", "tokenizer.json"):
        (saved / name).unlink()
    assert "neither vocab.txt nor tokenizer.json" in refusal("info", "-m", str(saved))
