"""`bertkit predict`: a label and a confidence for every row of a file; tags for its words, answers to its questions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertkit.cli.finetune import ColumnsOption, SkipBadOption
from bertkit.cli.options import DeviceOption, JsonOption, LongAsTrainedOption, ModelOption
from bertkit.cli.output import note, print_json, progress_counter
from bertkit.cli.places import check_apart, check_file
from bertkit.errors import BertkitError

if TYPE_CHECKING:
    from bertkit.tasks.predicted_files import FileSummary


def predict(
    file: Annotated[
        Path, typer.Argument(help="Texts: csv, tsv, jsonl, parquet; for other tasks CoNLL or SQuAD JSON; packed too.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the same rows go, with their labels.")],
    model: ModelOption = "",
    long: LongAsTrainedOption = None,
    columns: ColumnsOption = None,
    skip_bad: SkipBadOption = False,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Predict every row of a file: all its columns are kept, label and confidence are added.

    A tagger adds a column of tags to a CoNLL file. A reader of questions (SQuAD JSON, or .jsonl with question and
    context) writes its answers by id (.json, for SQuAD's own script), or one a line with places and scores (.jsonl).

    The folder of a head on frozen features (`bertkit train-head`) serves as the model, where it labels texts.

    Example: bertkit predict -m reviews new.csv -o labelled.csv
    """
    from bertkit.inference.classification import label_rows, limit_of, predict_file
    from bertkit.inference.feature_heads import load_head
    from bertkit.inference.loading import load
    from bertkit.tasks.feature_heads import is_head
    from bertkit.tasks.predicted_files import FileJob, predict_answers, predict_tags
    from bertkit.tasks.registry import reader_options, task_of

    check_file(output)
    check_apart(file, output)
    options = reader_options(columns, skip_bad)
    if model and is_head(model):
        if long:
            raise BertkitError("a head reads long texts as its features were made; leave out --long")
        with progress_counter("rows") as progress:
            label = load_head(model, device=device).predict_examples
            done = label_rows(label, file, output, columns=options, progress=progress)
        _show(done, json=json)
        return
    bert = load(model, device=device)
    task = task_of(bert.config, bert.stored)
    with progress_counter("rows") as progress:
        if task.name == "classification":
            done = predict_file(
                bert.model, bert.tokenizer, file, output,
                stored=bert.stored, long=long, columns=options, progress=progress,
            )  # fmt: skip
        else:
            predict_others = predict_tags if task.name == "tagging" else predict_answers
            limit = limit_of(bert.model, bert.stored, long)
            done = predict_others(FileJob(task, bert.model, bert.tokenizer, limit, file, output, options, progress))
    _show(done, json=json)


def _show(done: "FileSummary", *, json: bool) -> None:
    for line in done.lines:  # rows that were left out are among them: never in silence
        note(line)
    if json:
        print_json({"output": done.output, "rows": done.num_rows, "long": done.num_long})
    else:
        note(f"{done.num_rows:,} row{'s' * (done.num_rows != 1)} written to {done.output}")
