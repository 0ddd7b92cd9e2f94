"""docs/models.md and its picture: what each pre-training run took and what its model is worth, beside Google's.

    python -m bench.models small=RUN mini=RUN ... -o docs [--seconds small=798 ...]

A RUN is the folder that `bertkit pretrain` wrote (its weights may be gone), with the suite's results.json in suite/.
--seconds says what a run took from its first process to its last, kills included; else the journal's own time stands.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.pages.markdown import markdown_table
from bertkit.studies.published import BLIMP, FIVE, GOOGLE
from bertkit.studies.suite_report import SQUAD_NOTE, TEST_SETS
from bertkit.training.journal import read_journal

PAGE, PICTURE = "models.md", "models.svg"
OTHERS = ("CoNLL-2003", "SQuAD")
HELD_OUT = ("MLM loss", "MLM accuracy", "NSP accuracy")
MISSING = "-"


@dataclass(frozen=True)
class TrainedModel:
    """A run's journal, what it took, and the suite's results where it was measured."""

    name: str
    steps: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]  # each with the minutes and tokens up to it
    minutes: float
    suite: dict[str, Any]

    @classmethod
    def read(cls, name: str, folder: Path, seconds: float | None) -> "TrainedModel":
        """From its folder."""
        journal = read_journal(folder)
        steps = [line for line in journal if line["kind"] == "step"]
        if not steps:
            raise BertkitError(f"{folder} has no steps in its journal; name a folder that `bertkit pretrain` wrote")
        spent = list(accumulate(line["seconds"] / 60 for line in steps))
        read = list(accumulate(line["tokens"] for line in steps))
        at = {line["step"]: (minutes, tokens) for line, minutes, tokens in zip(steps, spent, read, strict=True)}
        measured = [line for line in journal if line["kind"] == "evaluation" and line["step"] in at]
        looks = [{**line, "minutes": at[line["step"]][0], "tokens": at[line["step"]][1]} for line in measured]
        steps = [{**line, "minutes": minutes} for line, minutes in zip(steps, spent, strict=True)]
        results = folder / "suite" / "results.json"
        suite = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
        return cls(name, steps, looks, spent[-1] if seconds is None else seconds / 60, suite)

    def median(self, task: str) -> str:
        """Of a task's seeds, times 100."""
        found = self.suite.get("tasks", {}).get(task)
        return f"{100 * found['median']:.1f} ± {100 * found['deviation']:.1f}" if found else MISSING

    def accuracy(self, part: str) -> str:
        """Of what needs no training, times 100."""
        found = self.suite.get(part, {}).get("accuracy")
        return MISSING if found is None else f"{100 * found:.1f}"


def run_rows(models: Iterable[TrainedModel]) -> list[list[str]]:
    """What every run took, and where it ended."""
    rows = []
    for model in models:
        tokens, end = sum(line["tokens"] for line in model.steps), model.evaluations[-1] if model.evaluations else {}
        speed = tokens / (60 * model.steps[-1]["minutes"])
        spent = [f"{model.minutes:.1f}", f"{model.steps[-1]['step']:,}", f"{tokens / 1e9:.2f}", f"{speed / 1e6:.2f}"]
        rows.append([model.name, *spent, *held_out(end)])
    return rows


def held_out(look: Mapping[str, float]) -> list[str]:
    """What a look at held-out text saw."""
    if not look:
        return [MISSING] * len(HELD_OUT)
    return [f"{look['mlm_loss']:.3f}", f"{100 * look['mlm_accuracy']:.1f}", f"{100 * look['nsp_accuracy']:.1f}"]


def score_rows(models: Iterable[TrainedModel]) -> list[list[str]]:
    """The five tasks, ours first."""
    rows = []
    for model in models:
        average = model.suite.get("average_of_five")
        told = MISSING if average is None else f"**{average:.1f}**"
        rows.append([f"**{model.name}**", *(model.median(task) for task in FIVE), told])
    for row in GOOGLE:
        rows.append([f"{row.name} ({row.shape})", *(f"{row.scores[task]:.1f}" for task in FIVE), f"{row.average:.1f}"])
    return rows


def other_rows(models: Iterable[TrainedModel]) -> list[list[str]]:
    """BLiMP, words in context and the two other tasks."""
    rows = [
        [model.name, model.accuracy("BLiMP"), model.accuracy("word-in-context"), *map(model.median, OTHERS)]
        for model in models
    ]
    return rows + [[name, f"{score:.1f}", "", "", ""] for name, score in BLIMP.items()]


def look_rows(models: Iterable[TrainedModel]) -> list[list[str]]:
    """Every look at held-out text on the way."""
    return [
        [model.name, f"{look['step']:,}", f"{look['minutes']:.1f}", f"{look['tokens'] / 1e9:.2f}", *held_out(look)]
        for model in models
        for look in model.evaluations
    ]


def page(models: Sequence[TrainedModel]) -> str:
    """The whole page."""
    parts = [
        "# Models of our own",
        "Each was trained by its recipe in [recipes](../recipes), as it was then, on one H200, from the text that "
        "`src/bertkit/bundled` describes and nothing else, and measured by `bertkit evaluate --suite`. Minutes are those "
        "of pre-training, from the first process to the last weights. What was tried on the way is in [log.md](log.md). "
        "This page is written by `python -m bench.models`.",
        markdown_table(
            ("model", "minutes", "steps", "billion tokens", "million tokens/s", *HELD_OUT), run_rows(models)
        ),
        "## Fine-tuned",
        "Medians of five seeds with their standard deviation; settings in [recipes/suite.toml](../recipes/suite.toml), "
        f"fixed before scoring and the same for all. {TEST_SETS}",
        markdown_table(("model", *FIVE, "average"), score_rows(models)),
        markdown_table(
            ("model", "BLiMP", "word in context", "CoNLL-2003, test F1", "SQuAD, dev F1"), other_rows(models)
        ),
        SQUAD_NOTE,
        "## On the way",
        f"![Loss and accuracy against minutes]({PICTURE})",
        markdown_table(("model", "step", "minutes", "billion tokens", *HELD_OUT), look_rows(models)),
    ]
    return "\n\n".join(parts) + "\n"


def plot(models: Sequence[TrainedModel], path: Path) -> None:
    """Training loss with looks at held-out text on it, and accuracy, against minutes."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    FigureCanvasSVG(figure)
    loss, accuracy = figure.subplots(1, 2)
    for model in models:
        shown = model.steps[:: max(1, len(model.steps) // 300)]
        (line,) = loss.plot([s["minutes"] for s in shown], [s["mlm_loss"] for s in shown], alpha=0.45, linewidth=1)
        looks = {"color": line.get_color(), "marker": "o", "markersize": 4, "label": model.name}
        minutes = [look["minutes"] for look in model.evaluations]
        loss.plot(minutes, [look["mlm_loss"] for look in model.evaluations], **looks)
        accuracy.plot(minutes, [100 * look["mlm_accuracy"] for look in model.evaluations], **looks)
    loss.set(xlabel="minutes", ylabel="MLM loss (line: training; dots: held out)", ylim=(1.8, 6))
    accuracy.set(xlabel="minutes", ylabel="held-out MLM accuracy, %")
    for axes in (loss, accuracy):
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    with matplotlib.rc_context({"svg.hashsalt": "models"}):  # the same picture from the same journals
        figure.savefig(path, metadata={"Date": None})


def parse_pairs(given: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, in order."""
    pairs = dict(one.split("=", 1) for one in given if "=" in one)
    if len(pairs) < len(given):
        raise BertkitError("give every run as NAME=FOLDER, each name once")
    return pairs


def read_models(runs: Mapping[str, str], seconds: Mapping[str, str]) -> list[TrainedModel]:
    """In the order given."""
    return [
        TrainedModel.read(name, Path(folder), float(seconds[name]) if name in seconds else None)
        for name, folder in runs.items()
    ]


def main() -> None:
    """Read, write and name both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    parser.add_argument("--seconds", nargs="*", default=[], metavar="NAME=SECONDS")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs"))
    given = parser.parse_args()
    try:
        models = read_models(parse_pairs(given.runs), parse_pairs(given.seconds))
    except BertkitError as error:
        sys.exit(f"bench.models: {error}")
    given.out.mkdir(parents=True, exist_ok=True)
    plot(models, given.out / PICTURE)
    (given.out / PAGE).write_text(page(models), encoding="utf-8")
    print(given.out / PAGE, given.out / PICTURE)


if __name__ == "__main__":
    main()
