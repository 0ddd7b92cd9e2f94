"""`bertkit features` and `bertkit train-head`: from a labelled file to a scored head."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bertkit.inference.bert import Bert
from bertkit.inference.feature_heads import load_head
from bertkit.tasks.feature_heads import load_trained_head
from tests.cli.running import refusal, run, run_json
from tests.cli.running import rows as rows_of

ROWS = [
    ("The dog sleeps.", "animal"),
    ("A cat runs home.", "animal"),
    ("Milk is white.", "food"),
    ("Bread is old.", "food"),
]
SENTENCES = "The O\ndog O\nran O\nto O\nNew B-LOC\nYork I-LOC\n\nMilk O\nsleeps O\n\n"


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "rows.tsv"
    path.write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS * 5))
    return str(path)


@pytest.fixture
def words(tmp_path: Path) -> str:
    path = tmp_path / "words.conll"
    path.write_text(SENTENCES * 4)
    return str(path)


def test_texts_with_labels_then_a_head(folder: Path, table: str, tmp_path: Path) -> None:
    output = str(tmp_path / "f.parquet")
    shown, notes = run("features", "-m", str(folder), table, "-o", output)
    assert shown == ""
    assert "text = column 'sentence', label = column 'label'" in notes
    assert f"20 vectors of 128 dimensions written to {output}" in notes
    assert pq.read_table(output).column("label").to_pylist()[:3] == ["animal", "animal", "food"]
    told = run_json("train-head", output, "--dev", output, "-o", str(tmp_path / "head"))
    assert told["scores"]["accuracy"] == 1.0
    assert "always the most frequent" in (tmp_path / "head" / "report.html").read_text()
    assert load_head(tmp_path / "head", device="cpu").predict(["Milk is white."])[0].label == "food"


def test_a_head_labels_the_rows_of_a_file(folder: Path, table: str, tmp_path: Path) -> None:
    head, output = str(tmp_path / "head"), tmp_path / "labelled.tsv"
    run("features", "-m", str(folder), table, "-o", str(tmp_path / "f.parquet"))
    run("train-head", str(tmp_path / "f.parquet"), "--dev", str(tmp_path / "f.parquet"), "-o", head)
    _, notes = run("predict", "-m", head, table, "-o", str(output))
    assert "20 rows written" in notes
    rows = [line.split("\t") for line in output.read_text().splitlines()]
    assert rows[0] == ["sentence", "label", "predicted_label", "confidence"]
    assert [row[1] for row in rows[1:]] == [row[2] for row in rows[1:]]
    assert "leave out --long" in refusal("predict", "-m", head, table, "-o", str(output), "--long", "error")
    assert "head on frozen features, not a checkpoint" in refusal("evaluate", "-m", head, "--data", table)
    (tmp_path / "head" / "config.json").touch()  # a head beside a checkpoint: the checkpoint counts
    assert "head on frozen features" not in refusal("predict", "-m", head, table, "-o", str(output))


def test_without_dev_a_part_is_held_out_and_scored_as_in_finetune(folder: Path, words: str, tmp_path: Path) -> None:
    rows = [f"{text} {number}\t{label}\n" for number in range(10) for text, label in ROWS]
    (tmp_path / "rows.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    said = "held out by class, seed 3"
    for data, per, expected, metric in (
        (str(tmp_path / "rows.tsv"), "text", f"one file only: 4 of 40 examples (10%) {said}", "accuracy"),
        (words + ".more", "word", "one file only: 2 of 20 examples (10%) held out at random, seed 3", "f1"),
    ):
        Path(words + ".more").write_text("".join(f"Word{n} O\nNew B-LOC\nYork I-LOC\n\n" for n in range(20)))
        made, head = str(tmp_path / f"{per}.parquet"), tmp_path / f"{per}-head"
        run("features", "-m", str(folder), data, "-o", made, "--per", per, "--layer", "last")
        options = ("--seed", "3", "--epochs", "2", "--width", "4", "--device", "cpu")
        shown, notes = run("train-head", made, "-o", str(head), *options)
        assert expected in notes
        assert "on the held-out part" in shown
        assert metric in [row[0] for row in rows_of(shown)]
        assert expected in (head / "report.html").read_text()
        assert run_json("train-head", made, "-o", str(head), *options)["scores"][metric] >= 0


def test_words_with_tags_then_a_tagger(folder: Path, words: str, tmp_path: Path) -> None:
    output, head = str(tmp_path / "f.parquet"), str(tmp_path / "head")
    told = run_json("features", "-m", str(folder), words, "-o", output, "--per", "word", "--layer", "weighted-all")
    assert (told["rows"], told["dimensions"]) == (32, 4 * 32)
    small = ["--epochs", "30", "--batch-size", "2", "--width", "8", "--learning-rate", "0.01", "--device", "cpu"]
    shown, notes = run("train-head", output, "--dev", output, "-o", head, *small)
    assert "f1" in shown
    page = (tmp_path / "head" / "report.html").read_text()
    assert "tagger on frozen features" in page
    assert len(load_trained_head(head).history) == 30
    assert "epoch 30: loss" in notes
    assert "shares of the layers, lowest first:" in notes
    (found,) = load_head(head, device="cpu").tag([["The", "dog", "ran", "to", "New", "York"]])
    assert found.tags == ("O", "O", "O", "O", "B-LOC", "I-LOC")


def test_arrays_of_lines(folder: Path, bert: Bert, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("The dog sleeps.\nMilk\n")
    run("features", "-m", str(folder), str(tmp_path / "lines.txt"), "-o", str(tmp_path / "f.npy"), "--layer", "-2")
    expected = bert.embed(["The dog sleeps.", "Milk"], layer=-2)
    assert np.abs(np.load(tmp_path / "f.npy") - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--layer", "lasst"], "unknown layer 'lasst'"),
        (["--layer", "9"], "no layer 9"),
        (["--per", "piece"], "per text or per word"),
        (["--pooling", "median"], "unknown pooling 'median'"),
        (["--label", "kind"], "has no column 'kind'"),
    ],
)
def test_refusals(arguments: list[str], said: str, folder: Path, table: str, tmp_path: Path) -> None:
    output = tmp_path / "out" / "f.parquet"
    output.parent.mkdir()
    assert said in refusal("features", "-m", str(folder), table, "-o", str(output), *arguments)
    assert list(output.parent.iterdir()) == []


def test_heads_need_features_with_labels(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("The dog sleeps.\nMilk\n")
    output = str(tmp_path / "f.parquet")
    run("features", "-m", str(folder), str(tmp_path / "lines.txt"), "-o", output)
    assert "row 1 ('The dog sleeps.') has no label" in refusal("train-head", output, "-o", str(tmp_path / "head"))
    assert "has vectors without labels" in refusal("train-head", str(tmp_path / "no.npy"), "-o", str(tmp_path / "h"))
    assert "; `bertkit features" in refusal("train-head", str(tmp_path / "no.parquet"), "-o", str(tmp_path / "h"))
    (tmp_path / "no.parquet").write_text("no")
    assert "cannot be read as parquet" in refusal("train-head", str(tmp_path / "no.parquet"), "-o", str(tmp_path / "h"))


def test_help_has_an_example(capsys: Any) -> None:
    for verb in ("features", "train-head", "tune-vectors"):
        assert f"Example: bertkit {verb}" in " ".join(run(verb, "--help")[0].split())


def test_rates_and_penalties_that_are_no_numbers(folder: Path, table: str, words: str, tmp_path: Path) -> None:
    head = str(tmp_path / "head")
    for data, per, option in ((table, "text", "--l2"), (words, "word", "--learning-rate")):
        made = str(tmp_path / f"{per}.parquet")
        run("features", "-m", str(folder), data, "-o", made, "--per", per, "--layer", "last")
        for number in ("nan", "inf"):
            assert "needs" in refusal("train-head", made, "-o", head, option, number, "--width", "4", "--epochs", "1")
    assert not Path(head).exists()
