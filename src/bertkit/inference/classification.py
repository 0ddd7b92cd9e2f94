"""A fine-tuned checkpoint in use: classes or numbers for texts and pairs, files predicted row by row, scores of a file.

Texts stream through in chunks, so that memory stays bounded and no file's logits are ever held.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.tasks.classification.task import ClassPrediction, classification_of
from bertkit.tasks.predicted_files import FileSummary, long_notes, was_long
from bertkit.tasks.predicting import predict_examples
from bertkit.tasks.reading.examples import TextExample
from bertkit.tasks.reading.texts import TextSource
from bertkit.tasks.reading.writing import prediction_writer
from bertkit.tasks.registry import StoredTask, read_examples, task_of, text_options
from bertkit.tokenizer import LongPolicy, Tokenizer
from bertkit.tokenizer.fitting import Limit

Text = str | tuple[str, str | None]
FILE_CHUNK = 1024  # rows of a file held at once


@dataclass(frozen=True)
class FileScores:
    """How a model does on a file."""

    task: str
    num_examples: int
    scores: dict[str, float]
    lines: list[str]


def predict_texts(
    model: BertModel,
    tokenizer: Tokenizer,
    texts: Iterable[Text],
    *,
    stored: StoredTask | None = None,
    long: LongPolicy | str | None = None,
    max_tokens: int | None = None,
) -> Iterator[ClassPrediction]:
    """A prediction for every text or pair, in their order."""
    task = classification_of(model.config, stored.settings if stored else {})
    examples = (text if isinstance(text, TextExample) else _example(text) for text in texts)
    for scored in predict_examples(
        task, model, tokenizer, examples, limit_of(model, stored, long), max_tokens=max_tokens
    ):
        yield scored.prediction


def limit_of(model: BertModel, stored: StoredTask | None, long: LongPolicy | str | None) -> Limit:
    """As in fine-tuning, unless another policy is asked for."""
    known = stored or StoredTask()
    positions = model.config.max_positions
    return Limit(min(known.max_length or positions, positions), long or known.long, known.stride)  # type: ignore[arg-type]


def _example(text: Text) -> TextExample:
    if isinstance(text, str):
        return TextExample(text)
    if not isinstance(text, tuple | list) or len(text) != 2 or not isinstance(text[0], str):
        raise BertkitError(f"a text is {type(text).__name__}, not a string or a pair: {text!r:.60}")
    return TextExample(text[0], text[1])


def predict_file(
    model: BertModel,
    tokenizer: Tokenizer,
    source: str | Path,
    output: str | Path,
    *,
    stored: StoredTask | None = None,
    long: LongPolicy | str | None = None,
    columns: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> FileSummary:
    """Every row with its label and confidence added; the output appears when it is whole."""
    task, limit = classification_of(model.config, stored.settings if stored else {}), limit_of(model, stored, long)

    def predict(examples: list[TextExample]) -> Iterator[ClassPrediction]:
        return (one.prediction for one in predict_examples(task, model, tokenizer, examples, limit))

    return label_rows(predict, source, output, long=limit.long, columns=columns, progress=progress)


def label_rows(
    predict: Callable[[list[TextExample]], Iterable[ClassPrediction]],
    source: str | Path,
    output: str | Path,
    *,
    long: LongPolicy = "window",
    columns: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> FileSummary:
    """A file's rows, a chunk at a time, with what `predict` says of them; `long` is what it does with long texts."""
    texts = TextSource(source, text_options(columns or {}, labelled=False))
    num_rows, long_lines = 0, []
    rows = texts.rows()
    with prediction_writer(output, texts.table) as write:
        while chunk := list(islice(rows, FILE_CHUNK)):
            examples = [TextExample(example.text, example.pair, None, example.line) for _, example in chunk]
            for (row, _), found in zip(chunk, predict(examples), strict=True):
                write(row, found.label, found.confidence)
                if was_long(found):
                    long_lines.append(row.line)
            num_rows += len(chunk)
            if progress:
                progress(len(chunk))
    lines = [texts.guess, *texts.problems.lines(), *long_notes(long_lines, long)]
    return FileSummary(str(output), num_rows, len(long_lines), lines)


def evaluate_file(
    model: BertModel,
    tokenizer: Tokenizer,
    source: str | Path,
    *,
    stored: StoredTask | None = None,
    long: LongPolicy | str | None = None,
    columns: Mapping[str, Any] | None = None,
) -> FileScores:
    """A fine-tuned checkpoint's scores on a file of its task; labels that it does not know are refused."""
    task = task_of(model.config, stored)
    options = dict(columns or {})
    if task.name == "classification":
        options |= {"labels": model.config.labels} if model.config.problem != "regression" else {}
        options |= {"problem": model.config.problem}
    read = read_examples(task.name, source, **options)
    scorer, limit = task.scorer(), limit_of(model, stored, long)
    places: list[int | str] = []
    for one in predict_examples(task, model, tokenizer, read.examples, limit):
        scorer.add(one.example, one.prediction)
        if was_long(one.prediction):
            places.append(one.example.line or getattr(one.example, "id", "?"))
    lines = [*read.lines, *long_notes(places, limit.long)]
    return FileScores(task.name, len(read.examples), scorer.scores(), lines)
