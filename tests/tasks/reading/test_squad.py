"""SQuAD's format: every answer stands in its context where it says, and what does not is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import BertkitError
from bertkit.tasks.reading.examples import Answer
from bertkit.tasks.reading.squad import read_squad
from tests.tasks.reading.real import unpack
from tests.text.packing import PACKERS

CONTEXT = "Oil rose in October 1973."


def squad(*questions: dict[str, Any], context: str = CONTEXT) -> str:
    return json.dumps(
        {"version": "x", "data": [{"title": "Oil", "paragraphs": [{"context": context, "qas": questions}]}]}
    )


def question(name: str = "q1", text: str = "October", start: int = 12, **more: Any) -> dict[str, Any]:
    return {"id": name, "question": "When?", "answers": [{"text": text, "answer_start": start}], **more}


def write(folder: Path, content: str, name: str = "a.json") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", PACKERS)
def test_both_versions(tmp_path: Path, suffix: str) -> None:
    none = {
        "id": "q2",
        "question": "Who?",
        "is_impossible": True,
        "answers": [],
        "plausible_answers": [{"text": "Oil"}],
    }
    path = tmp_path / f"dev.json{suffix}"
    path.write_bytes(PACKERS[suffix](squad(question(is_impossible=False), none).encode()))
    table = read_squad(path)
    first, second = table.examples
    assert (first.id, first.question, first.context, first.name) == ("q1", "When?", CONTEXT, "Oil")
    assert (first.answers, first.is_impossible) == ((Answer("October", 12),), False)
    assert (second.answers, second.is_impossible) == ((), True)
    assert table.guess == "1 of them without an answer"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (question("bad", start=11), "the answer 'October' is not at character 11 of its context; it stands at 12"),
        (
            question("bad", "Gas", 0),
            "the answer 'Gas' is not at character 0 of its context; it does not stand there at all",
        ),
        (question("bad", "", 0), "an answer is empty"),
        (question("bad", start=-13), "is not at character -13"),
        (question("bad", question=" "), "the question is empty"),
        (question("bad", answers=[{"text": "October"}]), "an answer needs a text and an answer_start"),
        (question("q1"), "this id comes twice"),
    ],
)
def test_bad_questions(tmp_path: Path, bad: dict[str, Any], reason: str) -> None:
    path = write(tmp_path, squad(question("q1"), bad, question("q3")))
    with pytest.raises(BertkitError) as caught:
        read_squad(path)
    place = path.read_text().index(f'"{bad["id"]}"')
    assert str(caught.value).startswith(f"{path}, line 1: question {bad['id']!r} at character {place:,}: ")
    assert reason in str(caught.value)
    table = read_squad(path, skip_bad=True)
    assert [e.id for e in table.examples] == ["q1", "q3"]
    assert table.problems.count == 1


def test_of_several_answers_only_the_bad_go(tmp_path: Path) -> None:
    both = question(answers=[{"text": "October", "answer_start": 3}, {"text": "1973", "answer_start": 20}])
    table = read_squad(write(tmp_path, squad(both)), skip_bad=True)
    assert table.examples[0].answers == (Answer("1973", 20),)
    assert table.problems.count == 1
    assert "question 'q1' at character" in table.lines()[-1]
    assert "one of its answers: the answer 'October' is not at character 3" in table.lines()[-1]


def test_a_bad_question_is_named_by_its_line(tmp_path: Path) -> None:
    content = json.dumps(json.loads(squad(question("q1"), question("\u00fc", "", 0))), indent=1)
    path = write(tmp_path, content)
    table = read_squad(path, skip_bad=True)
    line = next(number for number, text in enumerate(content.splitlines(), start=1) if "\\u00fc" in text)
    assert table.lines()[1:] == [
        f"left out 1 bad row of {path}",
        f"  {path}, line {line}: question '\u00fc': an answer is empty; fill it in, or take it out",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{\n"data": [', "line 2: not JSON"),
        ("[1]", "not in SQuAD's format"),
        ('{"data": [{}]}', "not in SQuAD's format"),
    ],
)
def test_other_files(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(BertkitError, match=reason):
        read_squad(write(tmp_path, content))
    with pytest.raises(BertkitError, match="no file"):
        read_squad(tmp_path / "nothing.json")


def test_one_question_a_row(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "question": "When?", "context": CONTEXT, "answers": {"text": ["1973"], "answer_start": [20]}},
        {"question": "When?", "context": CONTEXT, "answers": [{"text": "Oil", "answer_start": 0}]},
    ]
    found = read_squad(write(tmp_path, "\n".join(map(json.dumps, rows)), "a.jsonl")).examples
    assert [(e.id, e.answers, e.line) for e in found] == [
        ("a", (Answer("1973", 20),), 1),
        ("2", (Answer("Oil", 0),), 2),
    ]


def test_real_files(tmp_path: Path) -> None:
    folder = unpack("squad", tmp_path)
    assert len(read_squad(folder / "dev-v1.1.json").examples) == 10570
    v2 = read_squad(folder / "dev-v2.0.json").examples
    assert (len(v2), sum(e.is_impossible for e in v2)) == (11873, 5945)
    train = read_squad(folder / "train-v1.1-partial.json", skip_bad=True)
    assert (len(train.examples), train.problems.count) == (8653, 1)  # one answer of it is empty
    for example in train.examples:
        assert all(example.context[a.start : a.start + len(a.text)] == a.text for a in example.answers)


def test_rows_of_version_2_and_lists_that_do_not_match(tmp_path: Path) -> None:
    none = {"id": "a", "question": "Who?", "context": CONTEXT, "answers": {"text": [], "answer_start": []}}
    asked = {"id": "b", "question": "Who?", "context": CONTEXT}
    table = read_squad(write(tmp_path, f"{json.dumps(none)}\n{json.dumps(asked)}\n", "a.jsonl"))
    assert [example.is_impossible for example in table.examples] == [True, False]
    assert "1 of them without an answer" in table.guess
    short = {**none, "answers": {"text": ["October", "1973"], "answer_start": [12]}}
    with pytest.raises(BertkitError, match="an answer needs a text and an answer_start"):
        read_squad(write(tmp_path, json.dumps(short), "b.jsonl"))


def test_a_number_as_id_is_found_where_it_is_the_id(tmp_path: Path) -> None:
    content = json.dumps(json.loads(squad({**question(), "id": 1}, {**question("", "", 0), "id": 12})), indent=1)
    line = next(number for number, text in enumerate(content.splitlines(), start=1) if '"id": 12' in text)
    with pytest.raises(BertkitError, match=f"line {line}: question 12: an answer is empty"):
        read_squad(write(tmp_path, content))
