"""`bertkit.finetune` from files to a folder that bertkit and transformers use, with its report and card."""

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import bertkit
from bertkit.errors import BertkitError, LongTextWarning
from bertkit.tasks.reading.examples import TextExample
from bertkit.training.finetuning import memory as finetuning_memory
from bertkit.training.finetuning import run as finetuning_run
from bertkit.training.finetuning.config import FinetuneConfig
from bertkit.training.finetuning.data import prepare
from bertkit.training.finetuning.evaluation import TaskEvaluation
from bertkit.training.finetuning.memory import estimate_memory
from bertkit.training.finetuning.start import Base, open_base, start_lines, start_model
from bertkit.training.optimizers.build import OptimizerConfig
from bertkit.training.stepping import Progress
from tests.training.finetuning.test_run import Notes
from tests.training.tiny_tasks import SETTINGS, binary_task, make_base, make_examples, weights_of

QUICK: dict[str, Any] = {**SETTINGS, "epochs": 6}
LONGER: dict[str, Any] = {**SETTINGS, "epochs": 14}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return make_base(tmp_path_factory.mktemp("base"))


def write_csv(path: Path, examples: list[TextExample]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label"])
        writer.writerows([index, example.text, example.label] for index, example in enumerate(examples))
    return path


def test_five_lines_from_a_file_to_a_model_in_use(base: Base, tmp_path: Path) -> None:
    train, dev = (write_csv(tmp_path / f"{n}.csv", make_examples(60, n)) for n in (0, 1))
    bertkit.finetune("classification", model=base.path, train=train, dev=dev, **QUICK).save(tmp_path / "reviews")
    bert = bertkit.load(tmp_path / "reviews", device="cpu")
    said = bert.predict("w1 w20 w5")
    assert said.label == "yes"
    assert said.confidence is not None
    assert said.confidence > 0.6
    assert [one.label for one in bert.predict(["w0 w7", ("w1 w30", "w4")])] == ["no", "yes"]
    assert bert.evaluate(dev).scores["accuracy"] > 0.9


def test_the_saved_folder_is_an_ordinary_checkpoint_with_names(base: Base, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    examples = make_examples(60)
    found = bertkit.finetune("classification", model=base.path, train=examples, dev=make_examples(20, 5), **QUICK)
    folder = found.save(tmp_path / "saved")
    theirs = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert theirs.config.id2label == {0: "no", 1: "yes"}
    ids = torch.tensor([found.tokenizer.encode("w1 w20 w5").ids])
    with torch.no_grad():
        probabilities = torch.softmax(theirs(ids).logits[0], 0).tolist()
    ours = bertkit.load(folder, device="cpu").predict("w1 w20 w5")
    assert list(ours.probabilities.values()) == pytest.approx(probabilities, abs=1e-5)
    report, card = (folder / "report.html").read_text(), (folder / "README.md").read_text()
    assert "TF-IDF with logistic regression" in report
    assert "TF-IDF with logistic regression" in card
    assert "learning_rate = 0.005" in card
    assert found.report.confusion
    assert sum(map(sum, found.report.confusion)) == 20


def test_one_file_is_split_and_said_and_a_folder_is_gone_on_with(base: Base, tmp_path: Path) -> None:
    train = write_csv(tmp_path / "all.csv", make_examples(80))
    notes = Notes()
    parts = {"model": base.path, "train": train, "out": tmp_path / "out", "seeds": 2, **SETTINGS}
    first = bertkit.finetune("classification", watcher=notes, **parts)
    assert any(line.startswith("one file only: 8 of 80 examples") for line in notes.lines)
    assert len(first.cells) == 2
    assert (tmp_path / "out" / "report.html").is_file()
    assert not list((tmp_path / "out" / "runs").glob("*/attempt-*/checkpoints"))  # done: no longer needed
    again = Notes()
    second = bertkit.finetune("classification", watcher=again, **parts)
    assert not again.steps  # nothing was computed anew
    assert second.scores == first.scores
    assert second.spread == first.spread
    with pytest.raises(BertkitError, match="holds a run with epochs = 3, not 5; give the same settings"):
        bertkit.finetune("classification", **{**parts, "epochs": 5})


def test_fewer_seeds_than_before_do_not_get_the_model_of_another(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([0.2, 0.9])

    def judge(*_: Any) -> TaskEvaluation:
        return TaskEvaluation({"accuracy": next(scores)}, 0.5, 20, None)

    monkeypatch.setattr(finetuning_run, "evaluate_task", judge)
    parts = {"model": base.path, "train": make_examples(60), "out": tmp_path, **SETTINGS, "epochs": 1}
    assert bertkit.finetune("classification", seeds=2, **parts).config.seed == 1
    assert bertkit.finetune("classification", seeds=2, **parts).config.seed == 1
    with pytest.raises(BertkitError, match=r"holds the model of batch8-rate0\.005-epochs1-seed1, a better run"):
        bertkit.finetune("classification", seeds=1, **parts)


def test_texts_in_both_splits_are_reported(base: Base) -> None:
    notes = Notes()
    examples = make_examples(30)
    bertkit.finetune(
        "classification", model=base.path, train=examples, dev=examples[:6], watcher=notes, **{**QUICK, "epochs": 1}
    )
    assert "6 texts of dev stand in train too" in notes.lines


def test_long_texts_are_reported_by_line(base: Base) -> None:
    notes = Notes()
    examples = make_examples(30, longest=60)
    long = [str(example.line) for example in examples if len(example.text.split()) > 30]
    with pytest.warns(LongTextWarning):
        found = bertkit.finetune(
            "classification", model=base.path, train=examples, dev=examples[:5], watcher=notes, **{**QUICK, "epochs": 1}
        )
    assert (
        f"train: {len(long)} texts were too long for the model and read in several windows: lines {', '.join(long)}"
        in (notes.lines)
    )
    assert found.report.data[0].num_windowed == len(long)


def test_rows_left_out_and_texts_cut_are_counted_in_the_report(base: Base, tmp_path: Path) -> None:
    train, dev = (write_csv(tmp_path / f"{n}.csv", make_examples(30, n, longest=60)) for n in (0, 1))
    train.write_text(train.read_text() + "30,,yes\n31,w1,\n")
    with pytest.warns(LongTextWarning):
        found = bertkit.finetune(
            "classification", model=base.path, train=train, dev=dev, long="truncate", columns={"skip_bad": True},
            **{**QUICK, "epochs": 1},
        )  # fmt: skip
    for split, examples in zip(found.report.data, (make_examples(30, n, longest=60) for n in (0, 1)), strict=True):
        assert split.num_cut == sum(len(example.text.split()) > 30 for example in examples) > 0
        assert split.num_windowed == 0
    assert [split.num_left_out for split in found.report.data] == [2, 0]
    assert any("left out 2 bad rows" in line for line in found.report.notes)


def test_the_stride_of_windows_is_the_one_asked_for_and_is_remembered(base: Base, tmp_path: Path) -> None:
    examples = [*make_examples(30), TextExample(" ".join(["w1", *["w5"] * 79]), None, "yes", 31)]
    with pytest.warns(LongTextWarning):
        found = bertkit.finetune(
            "classification", model=base.path, train=examples, dev=examples, stride=0, **{**QUICK, "epochs": 1}
        )
    assert len(found.prepared.data.train[0].items) == 30 + 3  # 80 words, 30 a window
    bert = bertkit.load(found.save(tmp_path / "saved"), device="cpu")
    assert bert.stored.stride == 0
    with pytest.warns(LongTextWarning):
        assert bert.predict(examples[-1].text).num_windows == 3
    with pytest.raises(BertkitError, match="stride is -2; give the tokens"):
        bertkit.finetune("classification", model=base.path, train=examples, stride=-2)


def test_the_report_of_few_steps_asks_for_more(base: Base) -> None:
    slow = {**SETTINGS, "epochs": 4, "learning_rate": 1e-9}
    found = bertkit.finetune(
        "classification", model=base.path, train=make_examples(30), dev=make_examples(20, 5), **slow
    )
    (told,) = [line for line in found.report.notes if "collapsed" in line]
    assert told.endswith("it had few steps: try more epochs, a higher rate")


def test_a_folder_with_a_model_is_not_overwritten(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    before = (base.path / "model.safetensors").read_bytes()
    with pytest.raises(BertkitError, match="holds a model that would be overwritten; choose another folder"):
        bertkit.finetune("classification", model=base.path, train=make_examples(20), out=base.path, **SETTINGS)
    assert (base.path / "model.safetensors").read_bytes() == before


def test_a_folder_made_from_other_examples_is_refused(base: Base, tmp_path: Path) -> None:
    parts: dict[str, Any] = {"model": base.path, "out": tmp_path, **{**QUICK, "epochs": 1}}
    bertkit.finetune("classification", train=make_examples(30), **parts)
    with pytest.raises(BertkitError, match="holds a run on other examples; give the same settings and files"):
        bertkit.finetune("classification", train=make_examples(31), **parts)


@pytest.mark.parametrize(
    ("labels", "task", "metric"),
    [
        (lambda example: 1.0 if example.label == "yes" else -1.0, "regression", "pearson"),
        (lambda example: tuple(w for w in ("w0", "w1") if w in example.text.split()), "several", "micro_f1"),
    ],
)
def test_numbers_and_several_labels_at_once(base: Base, tmp_path: Path, labels: Any, task: str, metric: str) -> None:
    examples = [TextExample(e.text, None, labels(e)) for e in make_examples(80)]
    found = bertkit.finetune("classification", model=base.path, train=examples[:60], dev=examples[60:], **LONGER)
    assert found.metric == metric
    assert found.scores[metric] > 0.8
    bert = bertkit.load(found.save(tmp_path / "saved"), device="cpu")
    assert bert.config.problem == ("regression" if task == "regression" else "multi_label")
    label = bert.predict("w1 w20 w5").label
    assert isinstance(label, float) if task == "regression" else label == ("w1",)


def test_starting_from_a_finetuned_checkpoint_says_what_is_kept(base: Base, tmp_path: Path) -> None:
    model, _ = start_model(base, binary_task(), 0)
    from bertkit.model.formats import save_model

    save_model(model, tmp_path)
    base.tokenizer.save(tmp_path)
    again = open_base(tmp_path)
    assert again.labels == ("no", "yes")
    _, report = start_model(again, binary_task(), 0)
    assert list(start_lines(report))[1:] == ["kept from the checkpoint: pooler, classifier"]


def test_a_checkpoint_without_pooler_gets_a_new_one(tmp_path: Path) -> None:
    bare = make_base(tmp_path, heads=("mlm",))
    _, report = start_model(bare, binary_task(), 0)
    assert "new, to be learned: pooler, classifier (2 labels)" in start_lines(report)
    assert "not needed for this task, left out: MLM head" in start_lines(report)


def test_the_head_is_drawn_by_the_seed(base: Base) -> None:
    weights = [start_model(base, binary_task(), seed)[0].classifier for seed in (1, 1, 2)]
    first, same, other = (head.weight for head in weights if head is not None)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "sorting"}, "no task is named 'sorting'; choose one of classification, tagging, answering"),
        ({"max_length": 600}, "max_length is 600, but .* has 32 positions"),
        ({"train": "nowhere.csv"}, "nowhere.csv"),
        ({"train": [("a text", "a label")] * 9}, "an example is tuple; give a file, or TextExample"),
        ({"epoch": 2}, "did you mean 'epochs'"),
        ({"columns": {"txt": "text"}}, "no option 'txt'"),
        ({"precision": "float16"}, "float16 needs a CUDA GPU"),
        ({"dropout": 1.0}, "dropout is 1.0; it must be at least 0 and below 1"),
    ],
)
def test_bad_input_is_one_line(base: Base, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    train = write_csv(tmp_path / "train.csv", make_examples(30))
    parts: dict[str, Any] = {"task": "classification", "model": base.path, "train": train, "device": "cpu"}
    with pytest.raises(BertkitError, match=message) as refused:
        bertkit.finetune(**{**parts, **change})
    assert "\n" not in str(refused.value)


def test_memory_is_estimated_from_the_shapes() -> None:
    config, optimizer, cpu = bertkit.preset("large"), OptimizerConfig(), torch.device("cpu")
    one, two = (
        estimate_memory(config, optimizer, 512, 512 * 32, cpu, half=False, micro_tokens=tokens)
        for tokens in (512, 1024)
    )
    state = one.step.total - one.step.activations - one.step.logits
    assert state == pytest.approx(335e6 * 16, rel=0.02)  # weight, gradient, two moments
    assert two.step.activations == pytest.approx(2 * one.step.activations, rel=0.01)
    assert one.line().startswith("estimated memory: ")
    tiny = estimate_memory(bertkit.preset("tiny"), optimizer, 20, 100, cpu, half=False)
    assert tiny.micro_tokens >= 20
    assert tiny.step.activations < one.step.activations / 100  # a step is no larger than its texts


def test_large_at_512_tokens_is_fitted_to_the_memory_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    config, optimizer, gpu = bertkit.preset("large"), OptimizerConfig(), torch.device("cuda")
    monkeypatch.setattr("bertkit.training.estimate.memory.supports_varlen", lambda device, dtype: True)
    found = {}
    for gib in (80, 16, 6):
        monkeypatch.setattr(finetuning_memory, "available_memory", lambda device, gib=gib: gib * 2**30)
        found[gib] = estimate_memory(config, optimizer, 512, 512 * 32, gpu, half=True)
    assert found[80].micro_tokens == 512 * 32  # the whole step at once
    assert 512 <= found[16].micro_tokens < 512 * 32
    assert found[16].step.total < 0.85 * 16 * 2**30
    assert found[6].micro_tokens == 512
    assert "that is more than there is: lower max_length" in found[6].line()
    assert "more than there is" not in found[16].line()


def test_journal_and_result_are_plain_json(base: Base, tmp_path: Path) -> None:
    bertkit.finetune("classification", model=base.path, train=make_examples(40), out=tmp_path, **SETTINGS)
    (result,) = tmp_path.glob("runs/*/result.json")
    assert json.loads(result.read_text())["summary"]["num_steps"] == 3 * 5
    (journal,) = tmp_path.glob("runs/*/attempt-0/journal.jsonl")
    kinds = [json.loads(line)["kind"] for line in journal.read_text().splitlines()]
    assert kinds.count("evaluation") == 3
    assert kinds.count("step") == 15


def test_a_signal_stops_and_the_same_call_goes_on(base: Base, tmp_path: Path) -> None:
    class Killer(Notes):
        def on_step(self, values: dict[str, Any], progress: Progress) -> None:
            super().on_step(values, progress)
            if values["step"] == 5:
                os.kill(os.getpid(), signal.SIGTERM)

    parts: dict[str, Any] = {"model": base.path, "train": make_examples(60), **SETTINGS}
    with pytest.raises(BertkitError, match="stopped by SIGTERM before the first run was done; start again to go on"):
        bertkit.finetune("classification", out=tmp_path / "out", watcher=Killer(), **parts)
    notes = Notes()
    found = bertkit.finetune("classification", out=tmp_path / "out", watcher=notes, **parts)
    assert notes.steps[0]["step"] in (6, 7)
    whole = bertkit.finetune("classification", **parts)
    assert weights_of(found.model) == weights_of(whole.model)
    assert found.scores == whole.scores


def test_classes_are_counted_and_what_no_score_speaks_of_is_told(base: Base) -> None:
    texts = [
        TextExample(f"w{index % 40} w{index % 37}", None, "rare" if index == 7 else "usual") for index in range(40)
    ]
    found = prepare("classification", base, texts, None, {}, FinetuneConfig())
    assert "classes trained on: usual 35, rare 1" in found.notes
    assert any("class_weights=balanced" in line for line in found.notes)
    assert any(line.startswith("no development example has 'rare', so") for line in found.notes)
    even = prepare("classification", base, make_examples(60), make_examples(20, 5), {}, FinetuneConfig())
    assert [line.split(":")[0] for line in even.notes if "class" in line] == ["classes trained on"]


def test_a_label_that_only_dev_has_is_refused_by_file_and_line(base: Base, tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", make_examples(20))
    dev = write_csv(tmp_path / "dev.csv", [*make_examples(5), TextExample("w1 w2", None, "maybe")])
    with pytest.raises(BertkitError, match=r"dev\.csv, line 7: the label 'maybe' is not known; the labels are no, yes"):
        bertkit.finetune("classification", model=base.path, train=train, dev=dev, **QUICK)
