"""bench.suite_settings: a tenth of the training lines is held out, none is in both, and every setting is a task."""

from pathlib import Path

import pytest
from bench.suite_settings import EVERY, hold_out, hold_out_sentences, prepare, variants

from bertkit.studies.data_folder import DataFolder
from bertkit.studies.suite_config import read_suite


@pytest.mark.parametrize("header", [True, False])
def test_lines_are_either_trained_on_or_held_out(header: bool, tmp_path: Path) -> None:
    lines = [f"{number}\ta \u2028 \x85 sentence" for number in range(25)]
    source = tmp_path / "all.tsv"
    source.write_text("\n".join((["id\ttext"] if header else []) + lines) + "\n", encoding="utf-8")
    hold_out(source, tmp_path / "made", header=header)
    train, dev = (
        (tmp_path / "made" / f"{name}.tsv").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        for name in ("train", "dev")
    )
    if header:
        assert train.pop(0) == dev.pop(0) == "id\ttext"
    assert dev == [lines[0], lines[10], lines[20]]
    assert sorted(train + dev) == sorted(lines)


def test_parts_of_a_sentence_that_is_held_out_are_not_trained_on(tmp_path: Path) -> None:
    sentences = [f"the {name} film is a long and winding tale" for name in "abcdefghijklmnopqrstuvwxyz"]
    parts = ["a long", "long and winding tale", *(f"the {name} film is a long" for name in "abc")]
    source = tmp_path / "all.tsv"
    source.write_text("".join(f"{text} \t1\n" for text in ["sentence", *parts, *sentences]), encoding="utf-8")
    hold_out_sentences(source, tmp_path)
    train, dev = (
        [line.split(" \t")[0] for line in (tmp_path / f"{name}.tsv").read_text(encoding="utf-8").splitlines()[1:]]
        for name in ("train", "dev")
    )
    assert dev == sentences[::EVERY]
    assert train == ["a long", *parts[3:], *(sentence for sentence in sentences if sentence not in dev)]


def test_every_setting_is_a_task_of_its_own() -> None:
    task = read_suite().task("RTE")
    made = variants(task, [1e-4, 2e-4], [5, 10])
    assert [(one.learning_rate, one.epochs) for one in made] == [(1e-4, 5), (1e-4, 10), (2e-4, 5), (2e-4, 10)]
    assert made[0].name == "RTE, 0.0001, 5 epochs"
    assert {one.test for one in made} == {"RTE/dev.tsv"}
    assert {(one.metric, one.task) for one in made} == {(task.metric, task.task)}


def test_the_sets_that_are_scored_are_not_looked_at(tmp_path: Path) -> None:
    glue = tmp_path / "data" / "tasks" / "glue"
    for name in ("CoLA", "MRPC", "RTE", "STS-B"):
        (glue / name).mkdir(parents=True)
        (glue / name / "train.tsv").write_text("head\nline\n", encoding="utf-8")  # and no dev.tsv at all
    data = DataFolder.open(tmp_path / "data", tmp_path / "cache")
    names = prepare(read_suite(), data, tmp_path / "out", [1e-4], [5, 10], ["CoLA", "MRPC", "RTE", "STS-B"])
    assert len(names) == 8
    assert read_suite(tmp_path / "out" / "suite.toml").task("CoLA, 0.0001, 10 epochs").epochs == 10
