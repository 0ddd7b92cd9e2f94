"""README.md of a fine-tuned model's folder: what it does, on which data, how well, and what it is not.

In: the FinetuningReport that its page is made of. Out: Markdown with the hub's front matter. Only figures of the report
stand there; what nobody measured is not claimed.
"""

from collections.abc import Mapping, Sequence

from bertkit.pages.finetuning import DataFile, FinetuningReport, Summary, summarize
from bertkit.pages.markdown import markdown_table

PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
    "question answering": "question-answering",
    "answering": "question-answering",
}
USES = {
    "classification": 'bert.predict("A text to classify.")',
    "regression": 'bert.predict("A text to rate.")',
    "tagging": 'bert.tag("A text with names in it.")',
    "question answering": 'bert.answer("A question?", "A text that answers it.")',
    "answering": 'bert.answer("A question?", "A text that answers it.")',
}
MOST_LABELS = 50


def finetuning_card(report: FinetuningReport) -> str:
    """The card of one model."""
    lines = [
        *_front(report),
        f"# {report.name}",
        "",
        f"A BERT of {report.num_parameters:,} parameters for {report.task}, fine-tuned by bertkit from "
        f"`{report.base}`.{_labels(report.labels)}",
        "",
        *_use(report),
        "## Data",
        "",
        markdown_table(
            ["split", "file", "examples", "cut", "in windows", "bad rows left out"], map(_data_row, report.data)
        ),
        "",
        "The licences of these files and of the checkpoint it started from hold for this model too: name them here.",
        "",
        "## Scores on the development set",
        "",
        *_scores(report),
        *_seeds(summarize(report.runs, report.metric), report.metric),
        *_notes(report.notes),
        *(["## Settings", "", "```toml", report.settings.strip(), "```", ""] if report.settings else []),
        "## Limits",
        "",
        "The scores hold for texts like those above; on other texts, measure first. The kept checkpoint was chosen on the "
        "development set, so its scores there are a little too good. It repeats what its data says, errors and prejudices "
        "included.",
    ]
    return "\n".join(lines) + "\n"


def _front(report: FinetuningReport) -> list[str]:
    pipeline = PIPELINES.get(report.task)
    named = [f"pipeline_tag: {pipeline}"] if pipeline else []
    return ["---", "library_name: transformers", *named, "tags: [bert, bertkit]", "---", ""]


def _labels(labels: Sequence[str]) -> str:
    if not labels:
        return ""
    shown = ", ".join(f"`{label}`" for label in labels[:MOST_LABELS])
    return f" Its labels: {shown}{f' and {len(labels) - MOST_LABELS} more' if len(labels) > MOST_LABELS else ''}."


def _use(report: FinetuningReport) -> list[str]:
    use = USES.get(report.task)
    return ["```python", "import bertkit", "", 'bert = bertkit.load("this-folder")', use, "```", ""] if use else []


def _data_row(split: DataFile) -> list[str]:
    counts = (split.num_examples, split.num_cut, split.num_windowed, split.num_left_out)
    return [split.name, f"`{split.file}`", *(f"{count:,}" for count in counts)]


def _scores(report: FinetuningReport) -> list[str]:
    columns: dict[str, Mapping[str, float]] = {"this model": report.scores}
    if report.baseline_scores:
        columns[report.baseline or "baseline"] = report.baseline_scores
    if report.majority_scores:
        columns["always the most frequent"] = report.majority_scores
    rows = [
        [name.replace("_", " "), *(f"{scores[name]:.4f}" if name in scores else "" for scores in columns.values())]
        for name in report.scores
    ]
    return [markdown_table(["score", *columns], rows), ""]


def _seeds(summaries: Sequence[Summary], metric: str) -> list[str]:
    if not summaries or (len(summaries) == 1 and summaries[0].num_runs + summaries[0].num_collapsed < 2):
        return []
    names = list(dict.fromkeys(name for row in summaries for name in row.settings))
    rows = [
        [
            *(str(row.settings.get(name, "")) for name in names),
            str(row.num_runs),
            *_figures(row),
            str(row.num_collapsed),
        ]
        for row in summaries
    ]
    header = [
        *(name.replace("_", " ") for name in names),
        "runs",
        f"mean {metric.replace('_', ' ')}",
        "spread",
        "collapsed",
    ]
    return ["## Runs", "", markdown_table(header, rows), ""]


def _figures(row: Summary) -> list[str]:
    return ["" if value is None else f"{value:.4f}" for value in (row.mean, row.spread)]


def _notes(notes: Sequence[str]) -> list[str]:
    return ["## To know", "", *(f"- {note.strip()}" for note in notes), ""] if notes else []
