"""`bertkit tune-vectors`: pairs in, a folder for sentence vectors out."""

import json
from pathlib import Path

import pytest

import bertkit
from tests.cli.running import refusal, run, run_json

PAIRS = [
    ("The dog sleeps.", "A dog is asleep.", 5),
    ("The dog sleeps.", "Milk is white.", 0),
    ("A cat runs home.", "The cat ran to the house.", 4),
    ("A cat runs home.", "Bread is old.", 1),
]


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    path = tmp_path / "pairs.jsonl"
    rows = ({"sentence1": a, "sentence2": b, "score": score} for a, b, score in PAIRS * 5)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_tuned_folder(folder: Path, pairs: str, tmp_path: Path) -> None:
    output = tmp_path / "tuned"
    arguments = ["--train", pairs, "--dev", pairs, "-o", str(output), "--learning-rate", "1e-3", "--device", "cpu"]
    shown, notes = run("tune-vectors", "-m", str(folder), *arguments, "--epochs", "2", "--normalize")
    assert shown == ""
    assert "cosent loss over 20 pairs" in notes
    assert "epoch 2: loss" in notes
    assert "spearman on dev:" in notes
    assert json.loads((output / "tuning.json").read_text())["metric"] == "spearman"
    style = bertkit.load(output, device="cpu").style
    assert style is not None
    assert (style.pooling, style.normalize) == ("mean", True)
    told = run_json("embed", "-m", str(output), "The dog", "-o", str(tmp_path / "v.npy"))
    assert (told["pooling"], told["normalize"]) == ("mean", True)


def test_json_and_refusals(folder: Path, pairs: str, tmp_path: Path) -> None:
    base = ["tune-vectors", "-m", str(folder), "--train", pairs, "-o", str(tmp_path / "t"), "--device", "cpu"]
    told = run_json(*base, "--dev", pairs, "--epochs", "1", "--loss", "contrastive")
    assert told["loss"] == "contrastive"
    assert "unknown loss 'triplet'" in refusal(*base, "--loss", "triplet")
    assert "no column 'x'" in refusal(*base, "--negative", "x")
