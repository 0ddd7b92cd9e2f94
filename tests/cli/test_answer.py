"""`bertkit answer`: the answer of the Python call, marked in its context, with runners-up, and as JSON."""

from pathlib import Path

import pytest

from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from tests.cli.running import refusal, rows, run, run_json

CONTEXT = "The man went to the store [red] in Berlin. He bought milk."
QUESTION = "What did he buy?"


@pytest.fixture(scope="module")
def answerer() -> Bert:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "initializer_range": 0.5, "max_positions": 64}
    return untrained(2, heads=("span",), **sizes)


@pytest.fixture(scope="module")
def model(answerer: Bert, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(answerer.save(tmp_path_factory.mktemp("answerer")))


def test_answers_are_ranked_and_marked(answerer: Bert, model: str) -> None:
    shown, notes = run("answer", "-m", model, "--device", "cpu", "-q", QUESTION, "-c", CONTEXT, "-k", "3")
    answer = answerer.answer(QUESTION, CONTEXT, top_k=3)
    first, *others = rows(shown)
    assert first[0] == answer.text
    assert first[1] == f"{answer.start}-{answer.end}"
    assert [row[0] for row in others] == [span.text for span in answer.runners_up]
    assert QUESTION in shown
    assert CONTEXT in shown
    assert notes == ""


def test_json_has_every_question(answerer: Bert, model: str) -> None:
    asked = ["-q", QUESTION, "-q", "Where?"]
    found = run_json("answer", "-m", model, "--device", "cpu", *asked, "-c", CONTEXT)
    assert [one["question"] for one in found] == [QUESTION, "Where?"]
    for one in found:
        answer = answerer.answer(one["question"], CONTEXT)
        assert (one["text"], one["start"], one["end"]) == (answer.text, answer.start, answer.end)
        assert CONTEXT[one["start"] : one["end"]] == one["text"]
        assert one["score"] == pytest.approx(answer.score, rel=1e-4)


def test_a_file_is_one_context(model: str, tmp_path: Path) -> None:
    path = tmp_path / "context.txt"
    path.write_bytes(("\ufeff" + CONTEXT.replace(". ", ".\r\n")).encode())
    (found,) = run_json("answer", "-m", model, "--device", "cpu", "-q", QUESTION, "-f", str(path))
    text = CONTEXT.replace(". ", ".\r\n")
    assert text[found["start"] : found["end"]] == found["text"] != ""


def test_no_answer_is_said(model: str) -> None:
    arguments = ["answer", "-m", model, "--device", "cpu", "-q", QUESTION, "-c", CONTEXT]
    shown, _ = run(*arguments, "--no-answer-threshold", "-1000")
    assert rows(shown)[0][0] == "(no answer)"


def test_refusals(model: str, folder: Path, tmp_path: Path) -> None:
    asked = ("-q", QUESTION)
    assert "no span head" in refusal("answer", "-m", str(folder), *asked, "-c", CONTEXT)
    assert "one of the two" in refusal("answer", "-m", model, *asked)
    assert "one of the two" in refusal("answer", "-m", model, *asked, "-c", "a", "-f", "b")
    assert "cannot be read" in refusal("answer", "-m", model, *asked, "-f", str(tmp_path / "missing.txt"))
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\xfa")
    assert "is not UTF-8" in refusal("answer", "-m", model, *asked, "-f", str(tmp_path / "bad.txt"))
    assert "the limit is 64" in refusal("answer", "-m", model, *asked, "-c", "dog " * 99, "--long", "error")


def test_the_help_has_an_example() -> None:
    assert "bertkit answer -m answers-en -q" in " ".join(run("answer", "--help")[0].split())
