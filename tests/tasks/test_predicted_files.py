"""Files predicted by taggers and readers of questions: nothing of the input is lost, and places are right."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import BertkitError, LongTextWarning
from bertkit.model import BertModel, preset
from bertkit.tasks.answering.task import AnsweringTask
from bertkit.tasks.predicted_files import FileJob, predict_answers, predict_tags
from bertkit.tasks.predicting import predict_examples
from bertkit.tasks.reading.conll import read_conll
from bertkit.tasks.reading.squad import read_squad
from bertkit.tasks.tagging.task import TaggingTask
from bertkit.tokenizer.fitting import Limit
from tests.training.tiny import SIZES, tokenizer

LABELS = ("O", "B-PER", "I-PER")
CONLL = "-DOCSTART- -X- O\n\n# a comment\nw1 N O\nw2 N I-PER\n\nw3 V O\nw4 V O\nw5 N I-PER\n\n\n"


def make_model(task: Any) -> BertModel:
    torch.manual_seed(0)
    sizes = {**SIZES, "vocab_size": tokenizer().vocab_size, "initializer_range": 0.3}
    return BertModel(task.configure(preset("tiny", **sizes))).eval()


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_every_line_of_a_conll_file_is_kept_and_a_tag_added(tmp_path: Path) -> None:
    task, seen = TaggingTask(LABELS), list[int]()
    model, source, target = make_model(task), write(tmp_path / "in.txt", CONLL), tmp_path / "out.txt"
    done = predict_tags(FileJob(task, model, tokenizer(), Limit(48, "window"), source, target, {}, seen.append))
    before, after = CONLL.splitlines(), target.read_text().splitlines()
    assert len(before) == len(after)
    found = predict_examples(task, model, tokenizer(), read_conll(source).examples, Limit(48, "window"))
    tags = iter([tag for one in found for tag in one.prediction.tags])
    for old, new in zip(before, after, strict=True):
        is_word = old.startswith("w")
        assert new == (f"{old} {next(tags)}" if is_word else old)
    assert (done.num_rows, done.num_long, sum(seen)) == (2, 0, 2)


def test_sentences_left_out_are_named_and_long_ones_too(tmp_path: Path) -> None:
    task = TaggingTask(LABELS)
    long = "\n".join(f"w{index % 30}\tO" for index in range(60))
    source = write(tmp_path / "in.txt", f"w1\tO\n\nw2\tO\tO\n\n{long}\n")
    target, parts = tmp_path / "out.txt", (task, make_model(task), tokenizer(), Limit(30, "window"), source)
    with pytest.warns(LongTextWarning):
        done = predict_tags(FileJob(*parts, target, {"skip_bad": True}))
    rows = [line for line in target.read_text().splitlines() if line]
    assert len(rows) == 61
    assert all(line.count("\t") == 2 for line in rows)
    assert "line 3" in "\n".join(done.lines)
    assert done.lines[-1] == "1 text was too long and was read in windows: line 5"
    with pytest.raises(BertkitError, match="line 3"):
        predict_tags(FileJob(*parts, tmp_path / "no"))
    assert not (tmp_path / "no").exists()


def test_answers_by_id_or_a_line_each(tmp_path: Path) -> None:
    task, context = AnsweringTask(), "w1 w2 w3 w4 w5"
    qas = [{"id": f"q{number}", "question": f"w{number}", "answers": []} for number in range(3)]
    plain = {"data": [{"paragraphs": [{"context": context, "qas": qas}]}]}
    source, model = write(tmp_path / "in.json", json.dumps(plain)), make_model(task)
    parts = (task, model, tokenizer(), Limit(48, "window"), source)
    done = predict_answers(FileJob(*parts, tmp_path / "out.json"))
    by_id = json.loads((tmp_path / "out.json").read_text())
    predict_answers(FileJob(*parts, tmp_path / "out.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert done.num_rows == 3
    assert {row["id"]: row["answer"] for row in rows} == by_id
    assert list(by_id) == [example.id for example in read_squad(source).examples]
    assert all(context[row["start"] : row["end"]] == row["answer"] != "" for row in rows)
    with pytest.raises(BertkitError, match=r"answers are written to .json"):
        predict_answers(FileJob(*parts, tmp_path / "out.csv"))


def test_where_nothing_can_be_tagged_nothing_is_written_over(tmp_path: Path) -> None:
    task = TaggingTask(LABELS)
    source, target = write(tmp_path / "in.txt", "w1\t\n\nw2\t\n"), write(tmp_path / "out.txt", "of old")
    job = FileJob(task, make_model(task), tokenizer(), Limit(30, "window"), source, target, {"skip_bad": True})
    with pytest.raises(BertkitError, match="no sentences to tag"):
        predict_tags(job)
    assert target.read_text() == "of old"


def test_an_empty_last_column_stays_a_column(tmp_path: Path) -> None:
    task = TaggingTask(LABELS)
    source, target = write(tmp_path / "in.txt", "w1\tO\t\nw2\tO\tseen\n"), tmp_path / "out.txt"
    options = {"tag_column": "2"}
    predict_tags(FileJob(task, make_model(task), tokenizer(), Limit(30, "window"), source, target, options))
    assert [line.split("\t")[:3] for line in target.read_text().splitlines()] == [["w1", "O", ""], ["w2", "O", "seen"]]


def test_hashtags_of_a_sentence_that_is_left_out_stay_out(tmp_path: Path) -> None:
    task = TaggingTask(LABELS)
    content = "# said\n#w1\tO\nw2\tO\tO\n\n#w3\tO\nw4\tO\nw5\tO\n"
    source, target = write(tmp_path / "in.txt", content), tmp_path / "out.txt"
    predict_tags(FileJob(task, make_model(task), tokenizer(), Limit(30, "window"), source, target, {"skip_bad": True}))
    assert [line.split("\t")[0] for line in target.read_text().splitlines()] == ["# said", "", "#w3", "w4", "w5"]


def test_options_of_the_reader_are_checked(tmp_path: Path) -> None:
    task, source = TaggingTask(LABELS), write(tmp_path / "in.txt", CONLL)
    parts = (task, make_model(task), tokenizer(), Limit(30, "window"), source, tmp_path / "out.txt")
    for options, reason in (({"text": "1"}, "no option 'text'"), ({"word_column": "word"}, "so 'word' is none")):
        with pytest.raises(BertkitError, match=reason):
            predict_tags(FileJob(*parts, options))
