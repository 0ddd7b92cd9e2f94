"""`bertkit answer`: the words of a text that answer a question."""

import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertkit.cli import places
from bertkit.cli.options import DeviceOption, JsonOption, LongAsTrainedOption, ModelOption, StrideOption, check_stride
from bertkit.cli.output import console, print_json, table
from bertkit.errors import BertkitError

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from bertkit.tasks.answering.spans import AnswerPrediction

AROUND = 300  # characters shown on either side of an answer


def answer(
    question: Annotated[list[str], typer.Option("--question", "-q", help="The question; may be given several times.")],
    context: Annotated[str | None, typer.Option("--context", "-c", help="The text that tells the answer.")] = None,
    model: ModelOption = "",
    file: Annotated[
        str | None, typer.Option("--file", "-f", parser=places.file, help="A file with that text, or - for stdin.")
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="How many answers.")] = 5,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--no-answer-threshold",
            help="Say that there is no answer when it leads by more than this; else as the model was tuned.",
        ),
    ] = None,
    long: LongAsTrainedOption = None,
    stride: StrideOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Answer questions about a text with words of that text.

    Example: bertkit answer -m answers-en -q "Where does Wolfgang live?" -c "Wolfgang lives in Berlin."
    """
    from bertkit.inference.loading import load

    check_stride(long, stride)
    if threshold is not None and math.isnan(threshold):
        raise BertkitError("--no-answer-threshold is no number; give one, such as 0 or -1.5")
    text = _context(context, file)
    options: dict[str, Any] = {} if threshold is None else {"no_answer_threshold": threshold}
    bert = load(model, device=device)
    found = bert.answer(question, text, top_k=top_k, long=long, stride=stride, **options)
    if json:
        print_json([{"question": q, **asdict(prediction)} for q, prediction in zip(question, found, strict=True)])
        return
    for one, prediction in zip(question, found, strict=True):
        console().print(_answers(one, prediction))
        console().print(_marked(text, prediction.start, prediction.end), soft_wrap=True)


def _context(context: str | None, file: str | None) -> str:
    """The text itself or the whole of a file."""
    if (context is None) == (file is None):
        raise BertkitError("give the text with --context or a file with --file (- for standard input), one of the two")
    if context is not None:
        return context
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(str(file)).read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise BertkitError(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise BertkitError(f"{file} is not UTF-8 ({error.reason}); convert it first") from None


def _answers(question: str, prediction: "AnswerPrediction") -> "Table":
    rows = table("answer", "characters", "score", "confidence", title=question)
    no_answer = ("(no answer)", "", f"{prediction.no_answer_score:.3f}")
    if prediction.text:
        place, score = f"{prediction.start}-{prediction.end}", f"{prediction.score:.3f}"
        rows.add_row(prediction.text, place, score, f"{prediction.confidence:.4f}")
    else:
        rows.add_row(*no_answer, f"{prediction.confidence:.4f}")
    for span in prediction.runners_up:
        rows.add_row(span.text, f"{span.start}-{span.end}", f"{span.score:.3f}", f"{span.confidence:.4f}")
    return rows


def _marked(context: str, start: int, end: int) -> "Text":
    """The answer in bold among the words around it."""
    from rich.text import Text

    first, last = max(0, start - AROUND), end + AROUND
    before, after = "…" * (first > 0) + context[first:start], context[end:last] + "…" * (last < len(context))
    return Text(before).append(context[start:end], style="bold reverse green").append(after)
