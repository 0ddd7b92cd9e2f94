"""The page and the card of a fine-tuned model: every figure is there, means are right, hostile text stays text."""

from dataclasses import replace
from pathlib import Path

import pytest

from bertkit.errors import BertkitError
from bertkit.pages.finetuning import (
    ClassRow,
    DataFile,
    DevPoint,
    FinetuningReport,
    LossPoint,
    Mark,
    Mistake,
    Run,
    finetuning_page,
    summarize,
)
from bertkit.pages.finetuning_card import finetuning_card
from tests.pages.reading import assert_self_contained
from tests.pages.test_browser import ask
from tests.pages.test_pages import HOSTILE


def classification(text: str = "a dull film") -> FinetuningReport:
    return FinetuningReport(
        name="reviews",
        task="classification",
        base="small-en",
        num_parameters=1234567,
        metric="accuracy",
        labels=["neg", text],
        data=[
            DataFile("train", "train.csv", 800, num_cut=3, num_windowed=7, classes={"neg": 500, text: 300}),
            DataFile("dev", "dev.csv", 100, num_left_out=2),
        ],
        scores={"accuracy": 0.91, "macro_f1": 0.9},
        baseline="TF-IDF with logistic regression",
        baseline_scores={"accuracy": 0.845},
        majority_scores={"accuracy": 0.6},
        losses=[LossPoint(step, 1 / (1 + step)) for step in range(1, 9)],
        evaluations=[DevPoint(4, {"accuracy": 0.8}, 0.5), DevPoint(8, {"accuracy": 0.91}, 0.4)],
        confusion=[[55, 5], [4, 36]],
        classes=[ClassRow("neg", 0.932, 0.917, 0.924, 60), ClassRow(text, 0.878, 0.9, 0.889, 40)],
        runs=[
            Run({"learning_rate": 5e-5, "seed": 1}, {"accuracy": 0.91}, is_chosen=True),
            Run({"learning_rate": 5e-5, "seed": 2}, {"accuracy": 0.89}),
            Run({"learning_rate": 5e-5, "seed": 3}, {"accuracy": 0.6}, "says one class only; begun anew with seed 4"),
            Run({"learning_rate": 2e-5, "seed": 1}, {"accuracy": 0.95}),
        ],
        mistakes=[
            Mistake(text, "neg", text, "line 12", confidence=0.987, loss=4.4),
            Mistake("B " + text, text, "neg", "line 90", pair="second " + text),
        ],
        num_mistakes=9,
        notes=[f"2 texts of dev stand in train too: {text}"],
        settings="learning_rate = 5e-5\n",
        seconds=93.0,
        device="cpu",
    )


def tagging() -> FinetuningReport:
    mistake = Mistake(
        "Zoë 👍 visited New York.", "", "", "line 3",
        gold_marks=[Mark(0, 3, "PER"), Mark(14, 22, "LOC")], predicted_marks=[Mark(14, 17, "ORG")],
    )  # fmt: skip
    return FinetuningReport("names", "tagging", "base", 10, "f1", [], {"f1": 0.5}, ("O", "B-PER"), mistakes=[mistake])


def answering() -> FinetuningReport:
    mistake = Mistake(
        "Oil rose in October 1973.", "October", "1973", "q1", question="When?",
        gold_marks=[Mark(12, 19)], predicted_marks=[Mark(20, 24)],
    )  # fmt: skip
    return FinetuningReport("answers", "answering", "base", 10, "f1", [], {"f1": 0.5}, mistakes=[mistake])


def test_means_and_spreads() -> None:
    best, other = summarize(classification().runs, "accuracy")
    assert (best.settings, best.num_runs, best.mean, best.spread) == ({"learning_rate": 2e-5}, 1, 0.95, None)
    assert (other.num_runs, other.num_collapsed) == (2, 1)
    assert other.mean == pytest.approx(0.9)
    assert other.spread == pytest.approx(0.0141421, abs=1e-6)  # |0.91 - 0.89| / sqrt(2)
    assert (other.lowest, other.highest) == (0.89, 0.91)
    assert summarize([Run({"seed": 1}, {}, "collapsed")], "accuracy")[0].mean is None


@pytest.mark.parametrize("report", [classification(HOSTILE), tagging(), answering()], ids=lambda report: report.task)
def test_self_contained(report: FinetuningReport) -> None:
    page = assert_self_contained(finetuning_page(report))
    assert page.data["scores"] == report.scores
    assert page.data["mistakes"][0]["text"] == report.mistakes[0].text


def test_figures_must_be_finite() -> None:
    with pytest.raises(BertkitError, match="not finite"):
        finetuning_page(replace(classification(), scores={"accuracy": float("nan")}))


def test_a_tie_is_called_one(tmp_path: Path) -> None:
    report = classification()
    page = finetuning_page(replace(report, scores=dict(report.baseline_scores)))
    verdict = ask(page, "return document.getElementById('verdict').textContent;", tmp_path)["answer"]
    assert "BERT is as good. For this data the simple model is enough." in verdict


def test_classification_in_a_browser(tmp_path: Path) -> None:
    script = """
        const text = (id) => document.getElementById(id).textContent;
        const before = document.querySelectorAll('#mistakes > li').length, buttons = () => [...document.querySelectorAll('.confusion button')];
        buttons()[0].focus(); key(buttons()[0], 'ArrowRight');
        const focused = document.activeElement.getAttribute('aria-label');
        document.activeElement.click();
        const chosen = document.querySelectorAll('#mistakes > li').length, pressed = buttons().map((b) => b.getAttribute('aria-pressed'));
        const refocused = document.activeElement.getAttribute('aria-label'), note = text('mistakes-note');
        document.querySelector('#mistakes-note button').click();
        key(document.querySelector('.curve'), 'ArrowLeft');
        return {before, focused, chosen, pressed, refocused, note, after: document.querySelectorAll('#mistakes > li').length, images: document.images.length,
            counts: buttons().map((b) => Number(b.textContent)), lines: document.querySelectorAll('.curve path').length,
            wide: document.documentElement.scrollWidth <= innerWidth,
            ...Object.fromEntries(['verdict', 'scores', 'summaries', 'runs', 'classes', 'mistakes', 'data-files', 'notes', 'settings'].map((id) => [id, text(id)]))};
    """
    shown = ask(finetuning_page(classification(HOSTILE)), script, tmp_path)["answer"]
    assert (shown["before"], shown["chosen"], shown["after"], shown["images"]) == (2, 1, 2, 0)
    assert shown["focused"] == shown["refocused"] == f"true neg, predicted {HOSTILE}: 5"
    assert shown["pressed"] == ["false", "true", "false", "false"]
    assert shown["counts"] == [55, 5, 4, 36]
    assert shown["lines"] == 4  # two losses, one score and the baseline's level
    assert "TF-IDF with logistic regression has 0.8450: BERT is 0.0650 better." in shown["verdict"]
    for part, figures in {
        "scores": ["0.9100", "0.8450", "0.6000", "always the most frequent"],
        "summaries": ["0.9000", "± 0.0141", "0.9500"],
        "runs": ["seed 3", "collapsed: says one class only; begun anew with seed 4", "kept"],
        "classes": ["0.9240", HOSTILE, "40"],
        "mistakes": [HOSTILE, "98.7 %", "line 12", "second text"],
        "data-files": ["train.csv", "800", "in windows", "7", "bad rows left out", "neg 500"],
        "notes": ["2 texts of dev stand in train too"],
        "settings": ["learning_rate = 5e-5"],
    }.items():
        assert all(figure in shown[part] for figure in figures), (part, shown[part])
    assert shown["wide"]


def test_marks_in_a_browser(tmp_path: Path) -> None:
    script = """
        const marks = [...document.querySelectorAll('mark')].map((mark) => [mark.className, mark.textContent]);
        return {marks, text: document.getElementById('mistakes').textContent, hidden: document.getElementById('confusion-part').hidden, verdict: document.getElementById('verdict').textContent};
    """
    shown = ask(finetuning_page(tagging()), script, tmp_path)["answer"]
    assert shown["marks"] == [["true", "ZoëPER"], ["true", "New YorkLOC"], ["false", "NewORG"]]
    assert shown["hidden"]
    shown = ask(finetuning_page(answering()), script, tmp_path)["answer"]
    assert shown["marks"] == [["true", "October"], ["false", "1973"]]
    assert "questionWhen?" in shown["text"]
    assert shown["verdict"] == "F1 is 0.5000 on the development set."


def test_the_card_says_what_was_measured() -> None:
    card = finetuning_card(classification("good | bad"))
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: text-classification\n")
    for line in (
        "A BERT of 1,234,567 parameters for classification, fine-tuned by bertkit from `small-en`. Its labels: `neg`, `good | bad`.",
        "| train | `train.csv` | 800 | 3 | 7 | 0 |",
        "| accuracy | 0.9100 | 0.8450 | 0.6000 |",
        "| 2e-05 | 1 | 0.9500 |  | 0 |",
        "| 5e-05 | 2 | 0.9000 | 0.0141 | 1 |",
        "- 2 texts of dev stand in train too: good | bad",
        "learning_rate = 5e-5",
    ):
        assert line in card.split("\n"), line
    plain = finetuning_card(FinetuningReport("x", "answering", "b", 1, "f1", [], {"f1": 0.5}))
    assert "## Runs" not in plain
    assert "## Settings" not in plain
    assert "pipeline_tag: question-answering" in plain
