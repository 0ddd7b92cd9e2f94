"""`finetune`, `evaluate` and `predict` as people run them."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertkit.cli.main import app
from bertkit.training.finetuning.finetune import Interrupted
from tests.cli.running import refusal, run, run_json
from tests.training.tiny_tasks import make_base, make_examples

QUICK = [
    item
    for pair in ("epochs=6", "learning_rate=5e-3", "batch_size=8", "restarts=0", "log_every=1")
    for item in ("--set", pair)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cli")
    make_base(made / "base")
    write(made / "train.csv", 60, 0)
    write(made / "dev.csv", 20, 1)
    return made


def write(path: Path, num: int, seed: int) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["number", "review", "stars"])
        rows.writerows([index, example.text, example.label] for index, example in enumerate(make_examples(num, seed)))


@pytest.fixture(scope="module")
def reviews(folder: Path) -> Path:
    parts = ["--train", str(folder / "train.csv"), "--dev", str(folder / "dev.csv"), "--device", "cpu"]
    columns = ["--column", "text=review", "--column", "label=stars"]
    out, err = run(
        "finetune",
        "classification",
        "-m",
        str(folder / "base"),
        *parts,
        *columns,
        *QUICK,
        "-o",
        str(folder / "reviews"),
    )
    assert "TF-IDF" in out
    assert "estimated memory" in err
    assert "new, to be learned: classifier (2 labels)" in err
    return folder / "reviews"


COLUMNS = ("--column", "text=review", "--column", "label=stars", "--device", "cpu")


def test_evaluate_scores_a_file(folder: Path, reviews: Path) -> None:
    found = run_json("evaluate", "-m", str(reviews), "--data", str(folder / "dev.csv"), *COLUMNS)
    assert found["task"] == "classification"
    assert found["examples"] == 20
    assert found["scores"]["accuracy"] > 0.8


def test_predict_keeps_every_column_and_row(folder: Path, reviews: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    _, err = run(
        "predict",
        "-m",
        str(reviews),
        str(folder / "dev.csv"),
        "-o",
        str(target),
        "--column",
        "text=review",
        "--device",
        "cpu",
    )
    assert "20 rows written" in err
    with (folder / "dev.csv").open(encoding="utf-8") as before, target.open(encoding="utf-8") as after:
        given, made = list(csv.DictReader(before)), list(csv.DictReader(after))
    assert list(made[0]) == ["number", "review", "stars", "label", "confidence"]
    assert [{key: row[key] for key in given[0]} for row in made] == given
    right = sum(row["label"] == row["stars"] for row in made)
    assert right >= 16
    assert all(0.5 <= float(row["confidence"]) <= 1 for row in made)


def test_json_for_programs_and_a_second_call_repeats_nothing(folder: Path, reviews: Path) -> None:
    parts = ["--train", str(folder / "train.csv"), "--dev", str(folder / "dev.csv"), *COLUMNS, *QUICK]
    found = run_json("finetune", "classification", "-m", str(folder / "base"), *parts, "-o", str(reviews))
    assert found["metric"] == "accuracy"
    assert found["baseline"]["name"] == "TF-IDF with logistic regression"
    assert len(found["runs"]) == 1


def test_other_labels_are_refused_in_one_line(reviews: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("review,stars\nw1 w2,yes\nw0 w3,maybe\n")
    line = refusal("evaluate", "-m", str(reviews), "--data", str(other), *COLUMNS)
    assert "maybe" in line
    assert "3" in line  # the line of the file


def test_bad_input_is_one_line(folder: Path, reviews: Path, tmp_path: Path) -> None:
    base, train = str(folder / "base"), str(folder / "train.csv")
    out = str(tmp_path / "out")
    assert "epochs" in refusal(
        "finetune", "classification", "-m", base, "--train", train, "-o", out, "--set", "epoch=3"
    )
    assert "no task is named" in refusal("finetune", "blue", "-m", base, "--train", train, "-o", out)
    assert "role=name" in refusal("predict", "-m", str(reviews), train, "-o", out + ".csv", "--column", "text")
    assert "no task's head" in refusal("predict", "-m", base, train, "-o", out + ".csv", "--column", "text=review")
    assert not list(tmp_path.iterdir())


def test_rows_left_out_are_told_to_programs_too(reviews: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text('review,stars\ngood,yes\n"never closed,yes\n')
    for arguments in (
        ("predict", "-m", str(reviews), str(tmp_path / "bad.csv"), "-o", str(tmp_path / "out.csv"), "--skip-bad"),
        ("evaluate", "-m", str(reviews), "--data", str(tmp_path / "bad.csv"), "--skip-bad"),
    ):
        shown, said = run(*arguments, "--column", "text=review", "--column", "label=stars", "--json")
        assert json.loads(shown)
        assert "line 3" in said


def test_a_stopped_run_leaves_standard_output_to_programs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = Interrupted("SIGINT", tmp_path)
    monkeypatch.setattr("bertkit.training.finetuning.finetune.run_finetuning", lambda *_, **__: stopped)
    arguments = ["finetune", "classification", "-m", "x", "--train", "x", "-o", str(tmp_path / "out"), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "stopped by SIGINT" in result.stderr
