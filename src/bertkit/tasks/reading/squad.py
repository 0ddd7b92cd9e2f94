"""SQuAD's JSON (1.1 and 2.0; QAMR in that format), or one question a row (.jsonl, .parquet) -> QuestionExamples.

What enters: a path, also of a packed file. What leaves: questions whose answers stand in their context where they say.
A question that is broken is an error that names it, or is left out, counted and named.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.tasks.reading.examples import Answer, QuestionExample
from bertkit.tasks.reading.lines import check_unicode
from bertkit.tasks.reading.problems import BadRowError, Problems, whole_file
from bertkit.tasks.reading.tables import TABLE_KINDS, open_table
from bertkit.text.files import inner_suffix, open_bytes


@dataclass(frozen=True)
class QuestionTable:
    """All questions of a file, and what was seen on the way."""

    examples: list[QuestionExample]
    guess: str  # for people
    problems: Problems

    def lines(self) -> list[str]:
        """For people: what was taken, and what was left out."""
        return [f"{self.problems.file}: {len(self.examples):,} questions, {self.guess}", *self.problems.lines()]


def read_squad(path: str | Path, *, skip_bad: bool = False) -> QuestionTable:
    """All questions of a file."""
    problems = Problems(str(path), skip_bad)
    examples = list(stream_squad(path, problems))
    if not examples:
        raise BertkitError(f"{path} has no questions to use; {problems.count:,} were bad")
    impossible = sum(example.is_impossible for example in examples)
    guess = f"{impossible:,} of them without an answer" if impossible else "all to be answered"
    return QuestionTable(examples, guess, problems)


def stream_squad(path: str | Path, problems: Problems) -> Iterator[QuestionExample]:
    """Every good question, in the file's order; the bad ones go to the problems."""
    path, seen = Path(path), set[str]()
    if not path.is_file():
        raise BertkitError(f"no file {path}; name a file in SQuAD's format (.json, also .gz, .xz, .zst)")
    kind = TABLE_KINDS.get(inner_suffix(path))
    text = "" if kind in ("jsonl", "parquet") else _read_text(path)
    found = _row_questions(path, problems) if kind in ("jsonl", "parquet") else _json_questions(path, text)
    for line, question, context, title in found:
        name = question.get("id") if isinstance(question, Mapping) else None
        try:
            example, reasons = _example(question, context, title, line, problems)
            if example.id in seen:
                raise BadRowError("this id comes twice; give every question its own")
        except BadRowError as error:
            _add(problems, line, text, name, f": {error}")
        else:
            for reason in reasons:
                _add(problems, line, text, name, f", one of its answers: {reason}")
            seen.add(example.id)
            yield example


Found = Iterator[tuple[int | None, Any, Any, str | None]]


def _json_questions(path: Path, text: str) -> Found:
    for article in _articles(path, text):
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield None, question, paragraph["context"], article.get("title")


def _read_text(path: Path) -> str:
    with whole_file(path), open_bytes(path) as stream:
        raw = stream.read()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BertkitError(f"{path} is not UTF-8; convert it first") from None


def _add(problems: Problems, line: int | None, text: str, name: Any, reason: str) -> None:
    """Name a bad question by its line and id; JSON that is all one line, by its character too."""
    place = _find_id(text, name)
    where = f" at character {place:,}" if place >= 0 and "\n" not in text.rstrip() else ""
    found = 0 if place < 0 else text.count("\n", 0, place) + 1
    problems.add(line or found, f"question {name!r}{where}{reason}")


def _find_id(text: str, name: Any) -> int:
    """The character at which this id stands in a JSON text; -1 where there is none."""
    if not text or not isinstance(name, str | int):
        return -1
    written = "|".join(re.escape(json.dumps(name, ensure_ascii=escaped)) for escaped in (False, True))
    found = re.search(rf'"id"\s*:\s*({written})(?=\s*[,}}])', text)
    return found.start(1) if found else -1


def _articles(path: Path, text: str) -> list[Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise BertkitError(f"{path}{where}: not JSON; is the file complete?") from None
    try:
        articles: list[Any] = data["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                _ = paragraph["context"], list(paragraph["qas"])
    except (KeyError, TypeError, AttributeError):
        raise BertkitError(f"{path} is not in SQuAD's format: data, paragraphs, context, qas; see its page") from None
    return articles


def _row_questions(path: Path, problems: Problems) -> Found:
    """Rows with id, question, context and answers, the latter as a list or as lists of text and answer_start."""
    for row in open_table(path).rows(problems):
        question = dict(row.values)
        answers = question.get("answers")
        if isinstance(answers, Mapping):
            texts, starts = answers.get("text") or [], answers.get("answer_start") or []
            question["answers"] = [{"text": a, "answer_start": b} for a, b in zip_longest(texts, starts)]
            if not question["answers"]:
                question.setdefault("is_impossible", True)  # so SQuAD 2.0 is written by rows
        question.setdefault("id", str(row.line))
        yield row.line, question, question.get("context"), question.get("title")


def _example(
    question: Any, context: Any, title: str | None, line: int | None, problems: Problems
) -> tuple[QuestionExample, list[str]]:
    """The question, and why some of its answers were left out."""
    if not isinstance(question, Mapping) or not isinstance(context, str):
        raise BadRowError("no JSON object with a context; write id, question and answers")
    asked, name = question.get("question"), question.get("id")
    if not isinstance(asked, str) or not asked.strip():
        raise BadRowError("the question is empty; fill it in, or take it out")
    if not context.strip():
        raise BadRowError("its context is empty; fill it in, or take it out")
    if not isinstance(name, str | int):
        raise BadRowError("it has no id; give it one")
    is_impossible = bool(question.get("is_impossible", False))
    given = [] if is_impossible else question.get("answers") or []
    answers, reasons = _answers(given, check_unicode(context), problems)
    return QuestionExample(str(name), check_unicode(asked), context, answers, is_impossible, title, line), reasons


def _answers(given: Any, context: str, problems: Problems) -> tuple[tuple[Answer, ...], list[str]]:
    """The answers that stand where they say; of several, bad ones are left out alone, and why."""
    good: list[Answer] = []
    reasons: list[str] = []
    for answer in given:
        try:
            good.append(_answer(answer, context))
        except BadRowError as error:
            reasons.append(str(error))
    if reasons and (not good or not problems.skip_bad):
        raise BadRowError(reasons[0])
    return tuple(good), reasons


def _answer(answer: Any, context: str) -> Answer:
    text, start = (answer.get("text"), answer.get("answer_start")) if isinstance(answer, Mapping) else (None, None)
    if not isinstance(text, str) or not isinstance(start, int):
        raise BadRowError("an answer needs a text and an answer_start")
    if not text.strip():
        raise BadRowError("an answer is empty; fill it in, or take it out")
    if context[start : start + len(text)] != text or start < 0:
        place = context.find(text)
        remedy = f"it stands at {place}" if place >= 0 else "it does not stand there at all"
        raise BadRowError(f"the answer {text[:40]!r} is not at character {start} of its context; {remedy}")
    return Answer(text, start)
