"""docs/findings.md: every study beside the paper's own figures, with its plots, its command and what it means.

In: results of studies. Out: a folder with findings.md, findings/*.svg and findings/index.html, the page for students.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bertkit.pages.frame import save
from bertkit.pages.markdown import markdown_table, plain_cell
from bertkit.studies.findings.agreement import agreement_paragraphs, agreement_table, in_short
from bertkit.studies.findings.course import course_table
from bertkit.studies.findings.figures import page_of
from bertkit.studies.findings.plots import plot_study
from bertkit.studies.study.noise import TEST_NAME
from bertkit.studies.study.result import Arm, Measure, PaperRow, PaperTable, StudyResult, TextTable

DOCUMENT, FOLDER, PAGE = "findings.md", "findings", "index.html"
OPENING = """# The paper's findings, run again

`bertkit study` runs the comparisons of the paper again at a scale that one machine can afford, with bertkit's own data,
training loop and tasks. What follows was written by the program from the stored results; paragraphs marked as remarks
were written by hand. [The same as a page to explore]({page}).

A figure is the mean over the seeds ± their sample standard deviation, unless the study says otherwise. **▲** and **▼** mean better and worse than the
baseline (in bold), outside the noise: {test}. ≈ is within the noise, ? has too few seeds.

Where the paper has the same difference, both stand side by side. *The same way* and *the other way* are said only outside
the noise; of many differences that are none, one in twenty looks real all the same. *Visible here from* is how large a difference would have had to be, given how much the seeds differ, to be told
from chance: where the paper's is smaller, silence says nothing. MNLI, which the paper uses most, is not at hand: SST-2,
MRPC, RTE, STS-B, CoNLL-2003 and SQuAD stand in for it."""


def write_findings(results: Sequence[StudyResult], folder: str | Path) -> Path:
    """Write the document, its plots and the page into a folder such as docs/."""
    place = Path(folder)
    page = page_of(results)  # refuses an empty list before anything is written
    plots = {result.name: plot_study(result, place / FOLDER) for result in results}
    save(place / FOLDER / PAGE, page)
    save(place / DOCUMENT, findings_text(results, plots))
    return place / DOCUMENT


def findings_text(results: Sequence[StudyResult], plots: dict[str, list[Path]]) -> str:
    """The whole document."""
    parts = [OPENING.format(page=f"{FOLDER}/{PAGE}", test=TEST_NAME)]
    parts += [markdown_table(("study", "question", "differences beside the paper's"), map(_contents, results))]
    for result in results:
        parts += study_text(result, plots.get(result.name, []))
    return "\n\n".join(parts) + "\n"


def _contents(result: StudyResult) -> tuple[str, ...]:
    return f"[{result.name}](#{result.name})", result.question, in_short(result)


def study_text(result: StudyResult, plots: Iterable[Path]) -> list[str]:
    """One study's paragraphs."""
    parts = [f"## {result.name}", f"*{result.question}*", f"The paper: {result.claim}"]
    parts += [part for table in result.paper for part in (f"{_sentence(table.source)}:", paper_table(result, table))]
    parts += [f"Here, at the scale `{result.scale}`:", score_table(result)] if result.scores else []
    parts += [f"The noise in this study: {result.test}."] if result.scores and result.test != TEST_NAME else []
    parts += [f"![{path.stem.replace('-', ' ')}]({FOLDER}/{path.name})" for path in plots]
    parts += [part for table in result.tables for part in (f"**{plain_cell(table.title)}**", text_table(table))]
    parts += ["### Does it agree with the paper?", *agreement_paragraphs(result)]
    parts += [text_table(beside)] if (beside := agreement_table(result)) else []
    parts += [f"**{plain_cell(course.title)}**", text_table(course)] if (course := course_table(result)) else []
    parts += [f"Remark: {result.remark}"] if result.remark else []
    parts += ["### What this scale can and cannot show"] if result.notes else []
    parts += ["\n".join(f"- {note}" for note in result.notes)] if result.notes else []
    parts += ["### Run it yourself", f"    {result.command}"] if result.command else []
    parts += [_about(result)] if result.about else []
    return parts


def score_table(result: StudyResult) -> str:
    """Arms by measures: mean, spread and verdict."""
    measured = [one for one in result.measures if any(result.values(arm.name, one.name) for arm in result.arms)]
    head = ["arm", *(f"#{_head(measure)}" for measure in measured)]
    rows = []
    for arm in result.arms:
        label = f"**{arm.label}**" if arm.name == result.baseline else arm.label
        rows.append([label, *(score_cell(result, arm, measure) for measure in measured)])
    return markdown_table(head, rows)


def score_cell(result: StudyResult, arm: Arm, measure: Measure) -> str:
    """80.1 ± 0.4 ▲"""
    summary = result.summary(arm.name, measure.name)
    if summary is None:
        return "–"
    text = number(summary.mean, measure.decimals)
    if summary.has_spread:
        text += f" ± {number(summary.spread, measure.decimals)}"
    difference = result.difference(arm.name, measure.name)
    if arm.name == result.baseline or difference is None:
        return text
    if difference.is_outside_noise is None:
        return f"{text} ?"
    is_better = (difference.value > 0) != measure.lower_is_better
    return f"{text} {('▲' if is_better else '▼') if difference.is_outside_noise else '≈'}"


def number(value: float, decimals: int) -> str:
    """Large ones by thousands, small ones to their decimals."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.{decimals}f}"


def paper_table(result: StudyResult, table: PaperTable) -> str:
    """As the paper has it; the row of our baseline in bold."""
    rows = []
    for row in table.rows:
        label = f"**{row.label}**" if row.arm == result.baseline else row.label
        rows.append([label, *(paper_cell(table, row, column) for column in table.columns)])
    return markdown_table(["", *(f"#{column}" for column in table.columns)], rows)


def paper_cell(table: PaperTable, row: PaperRow, column: str) -> str:
    """91.0 beside 95.6: one number of decimals a column."""
    if column not in row.values:
        return "–"
    texts = [f"{one.values[column]:g}" for one in table.rows if column in one.values]
    return f"{row.values[column]:.{max(len(text.partition('.')[2]) for text in texts)}f}"


def text_table(table: TextTable) -> str:
    """As it stands."""
    return markdown_table(table.columns, table.rows)


def _head(measure: Measure) -> str:
    return measure.name + (f" ({measure.unit})" if measure.unit else "") + (" ↓" if measure.lower_is_better else "")


def _about(result: StudyResult) -> str:
    return "Made with " + "; ".join(f"{name} {value}" for name, value in result.about.items()) + "."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
