"""A fine-tuned checkpoint in use: texts, pairs and lists, files row by row, and what it remembers of its training."""

from pathlib import Path

import pytest

import bertkit
from bertkit.errors import BertkitError, LongTextError, LongTextWarning
from bertkit.inference import classification
from bertkit.inference.bert import Bert
from bertkit.inference.classification import predict_file
from bertkit.tasks.classification.task import ClassificationTask, ClassPrediction
from bertkit.tasks.registry import StoredTask, read_task, task_of, write_task
from bertkit.tokenizer.fitting import Limit
from bertkit.training.finetuning.start import open_base, start_model
from tests.training.tiny_tasks import make_base

LONG = " ".join(f"w{index % 40}" for index in range(100))


@pytest.fixture(scope="module")
def fine(tmp_path_factory: pytest.TempPathFactory) -> Bert:
    """A classifier with random weights."""
    base = make_base(tmp_path_factory.mktemp("base"))
    model, _ = start_model(base, ClassificationTask(("no", "yes")), 0)
    return Bert(model, base.tokenizer, stored=StoredTask("classification", {}, 24, "window"))


def test_one_text_a_pair_or_many(fine: Bert) -> None:
    single = fine.predict("w1 w2")
    assert isinstance(single, ClassPrediction)
    assert sum(single.probabilities.values()) == pytest.approx(1)
    pair = fine.predict(("w1 w2", "w3"))
    assert isinstance(pair, ClassPrediction)
    assert pair != single
    assert fine.predict(("w1 w2", "")) == single  # an empty second text is none
    many = fine.predict(["w1 w2", ("w1 w2", "w3"), ("w1 w2", None)])
    for one, other in zip(many, [single, pair, single], strict=True):
        assert one.label == other.label
        assert one.confidence == pytest.approx(other.confidence, abs=1e-5)
    assert fine.predict([]) == []


def test_long_texts_are_treated_as_in_training_unless_asked(fine: Bert) -> None:
    with pytest.warns(LongTextWarning, match="more than 24 tokens"):
        assert fine.predict(LONG).num_windows > 1
    with pytest.warns(LongTextWarning, match="were cut"):
        assert fine.predict(LONG, long="truncate").num_cut == 100 - 22
    with pytest.raises(LongTextError, match="the limit is 24"):
        fine.predict(LONG, long="error")
    with pytest.raises(BertkitError, match="long is 'blue'"):
        fine.predict("w1", long="blue")


def test_what_it_was_tuned_for_is_saved_and_loaded(fine: Bert, tmp_path: Path) -> None:
    fine.save(tmp_path)
    again = bertkit.load(tmp_path, device="cpu")
    assert again.stored == fine.stored
    assert again.predict("w1 w2") == fine.predict("w1 w2")
    (tmp_path / "task.json").write_text("{")
    with pytest.raises(BertkitError, match=r"task.json cannot be read"):
        bertkit.load(tmp_path, device="cpu")


def test_a_threshold_survives(tmp_path: Path) -> None:
    task = ClassificationTask(("a", "b"), "multi_label", threshold=0.25)
    write_task(tmp_path, task, Limit(64, "truncate", 5))
    stored = read_task(tmp_path)
    assert stored.limit == Limit(64, "truncate", 5)
    config = task.configure(bertkit.preset("tiny"))
    assert task_of(config, stored) == task
    assert read_task(tmp_path / "nowhere") == StoredTask()


def test_files_of_many_chunks_keep_their_order_and_name_long_lines(
    fine: Bert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classification, "FILE_CHUNK", 3)
    texts = [f"w{index} w{index + 1}" for index in range(10)]
    texts[4] = LONG
    source, target = tmp_path / "in.tsv", tmp_path / "out.csv"
    source.write_text("id\ttext\n" + "".join(f"{n}\t{text}\n" for n, text in enumerate(texts)))
    with pytest.warns(LongTextWarning):
        done = predict_file(fine.model, fine.tokenizer, source, target, stored=fine.stored, columns={"text": "text"})
    assert (done.num_rows, done.num_long) == (10, 1)
    assert done.lines[-1] == "1 text was too long and was read in windows: line 6"
    rows = [line.split(",") for line in target.read_text().splitlines()]
    assert rows[0] == ["id", "text", "label", "confidence"]
    assert [row[1] for row in rows[1:]] == texts
    with pytest.warns(LongTextWarning):
        expected = [one.label for one in fine.predict(texts)]
    assert [row[2] for row in rows[1:]] == expected


def test_a_failing_file_leaves_nothing_behind(fine: Bert, tmp_path: Path) -> None:
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("id,text\n1,w1 w2\n2,\n")
    with pytest.raises(BertkitError, match=r"line 3|in\.csv:3"):
        predict_file(fine.model, fine.tokenizer, source, target, columns={"text": "text"})
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_an_unknown_column_option_is_one_line(fine: Bert, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,text\n1,w1 w2\n")
    with pytest.raises(
        BertkitError, match="files for classification have no option 'review'; choose from text, pair, label"
    ):
        predict_file(fine.model, fine.tokenizer, tmp_path / "in.csv", tmp_path / "out.csv", columns={"review": "text"})


def test_checkpoints_without_a_classifier_are_refused(tmp_path: Path) -> None:
    base = make_base(tmp_path)
    bert = bertkit.load(tmp_path, device="cpu")
    with pytest.raises(BertkitError, match="no classifier; fine-tune one"):
        bert.predict("w1")
    with pytest.raises(BertkitError, match="no task's head"):
        bert.evaluate(tmp_path / "x.csv")
    assert open_base(tmp_path).labels == base.labels == ()


def test_two_pairs_are_two_texts(fine: Bert) -> None:
    pairs = (("one text", "and another"), ("a third", "and a fourth"))
    assert fine.predict(pairs) == fine.predict(list(pairs))
    with pytest.raises(BertkitError, match="not a string or a pair"):
        fine.predict([pairs])  # type: ignore[list-item]
