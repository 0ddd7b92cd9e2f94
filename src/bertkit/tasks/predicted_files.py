"""Files of sentences or questions predicted: a column of tags more, or the answers by the questions' ids.

In: a task, a model with its head, a CoNLL file or questions in SQuAD's format. Out: a file that appears when it is whole
(the tags with every line and column of the input), and what is to be said of it. Examples stream through in chunks.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.tasks.predicting import predict_examples
from bertkit.tasks.reading.conll import DOCUMENT_START, TagSource
from bertkit.tasks.reading.examples import QuestionExample
from bertkit.tasks.reading.lines import raw_lines
from bertkit.tasks.reading.writing import open_aside
from bertkit.tasks.registry import read_examples, tag_options
from bertkit.tasks.task import Scored, Task
from bertkit.text.counted import agree, counted
from bertkit.text.files import inner_suffix
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.fitting import Limit

MOST_LINES = 20  # named in a note
Count = Callable[[int], None]


@dataclass(frozen=True)
class FileSummary:
    """What became of a file."""

    output: str
    num_rows: int
    num_long: int  # texts that were cut or split
    lines: list[str]  # for people: columns taken, long texts by line


@dataclass(frozen=True)
class FileJob:
    """A file to predict: by what, from where, to where."""

    task: Task[Any, Any]
    model: BertModel
    tokenizer: Tokenizer
    limit: Limit
    source: str | Path
    output: str | Path
    options: Mapping[str, Any] = field(default_factory=dict)  # of the reader
    progress: Count | None = None

    def predict(self, examples: Iterable[Any]) -> Iterator[Scored[Any, Any]]:
        """Every example with its prediction, counted once it is dealt with."""
        for one in predict_examples(self.task, self.model, self.tokenizer, examples, self.limit):
            yield one
            if self.progress:
                self.progress(1)


def was_long(prediction: Any) -> bool:
    """Whether its text was cut or split."""
    return bool(prediction.num_windows > 1 or prediction.num_cut)


def long_notes(places: Sequence[int | str], long: str) -> list[str]:
    """Which texts were too long, by line or id, and what was done."""
    if not places:
        return []
    shown = ", ".join(map(str, places[:MOST_LINES])) + (" ..." if len(places) > MOST_LINES else "")
    what = "cut" if long == "truncate" else "read in windows"
    name = ("line" if isinstance(places[0], int) else "question") + "s" * (len(places) > 1)
    return [
        f"{counted(len(places), 'text was', 'texts were')} too long and {agree(len(places), 'was', 'were')} {what}: {name} {shown}"
    ]


def predict_tags(job: FileJob) -> FileSummary:
    """Every line of a CoNLL file with its word's tag behind it; what stands there of old stays, as conlleval wants."""
    sentences = TagSource(job.source, tag_options(job.options))
    places: list[int | str] = []
    num = 0
    lines = enumerate(raw_lines(Path(job.source)), start=1)
    with open_aside(Path(job.output)) as stream, io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
        for one in job.predict(sentences):
            first, tags = one.example.line, one.prediction.tags
            _copy(lines, first - 1, text, sentences)
            gap, blank = ("\t", "\r\n") if sentences.by_tabs else (" ", None)  # an empty last column is one
            for (_, line), tag in zip(islice(lines, len(tags)), tags, strict=True):
                text.write(f"{line.rstrip(blank)}{gap}{tag}\n")
            num += 1
            places += [first] if was_long(one.prediction) else []
        _copy(lines, None, text, sentences)
        if not num:  # inside, so that nothing is written over what is there
            raise BertkitError(
                f"{job.source} has no sentences to tag; write one word a line, a blank line between sentences"
            )
    said = [f"{job.source}: {sentences.guess}", *sentences.problems.lines(), *long_notes(places, job.limit.long)]
    return FileSummary(str(job.output), num, len(places), said)


def _copy(lines: Iterator[tuple[int, str]], until: int | None, text: io.TextIOWrapper, source: TagSource) -> None:
    """Blank lines, comments and documents' starts as they are; sentences that were left out stay out."""
    if until == 0:
        return
    for number, line in lines:
        if not line.strip() or line.startswith(DOCUMENT_START) or source.is_comment(line):
            text.write(line)
        if number == until:
            return


def predict_answers(job: FileJob) -> FileSummary:
    """The answer of every question: {id: text} in .json, or a line each with its place and scores in .jsonl."""
    path = Path(job.output)
    if inner_suffix(path) not in (".json", ".jsonl"):
        raise BertkitError(
            f"{path}: answers are written to .json (by id) or .jsonl (with places and scores); name it so"
        )
    read = read_examples(job.task.name, job.source, **job.options)
    places: list[int | str] = []
    by_line = inner_suffix(path) == ".jsonl"
    with open_aside(path) as stream, io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
        for number, one in enumerate(job.predict(read.examples)):
            text.write(_row(one) if by_line else f"{',' if number else '{'}\n{_entry(one)}")
            places += [one.example.id] if was_long(one.prediction) else []
        text.write("" if by_line else "\n}\n")
    said = [*read.lines, *long_notes(places, job.limit.long)]
    return FileSummary(str(path), len(read.examples), len(places), said)


def _entry(one: Scored[QuestionExample, Any]) -> str:
    return f"{json.dumps(one.example.id)}: {json.dumps(one.prediction.text, ensure_ascii=False)}"


def _row(one: Scored[QuestionExample, Any]) -> str:
    found = one.prediction
    plain = {"id": one.example.id, "question": one.example.question, "answer": found.text}
    plain |= {"start": found.start, "end": found.end, "confidence": found.confidence}
    plain |= {"score": found.score, "no_answer_score": found.no_answer_score}
    return json.dumps(plain, ensure_ascii=False) + "\n"
