"""docs/models.md and its picture: what each pre-training run took and what its model is worth, beside Google's.

    python -m bench.models small=RUN mini=RUN ... -o docs [--seconds small=798 ...] [--remark small="..."]

A RUN is the folder that `bertkit pretrain` wrote (its weights may be gone), with the suite's results.json in suite/.
--seconds says what a run took from its first process to its last, kills included; else the journal's own time stands.
What is shown is kept in models.json beside the page: models that are not named stay as they were, once their runs are gone.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.pages.markdown import markdown_table
from bertkit.studies.published import BLIMP, FIVE, GOOGLE
from bertkit.studies.suite_report import SQUAD_NOTE, TEST_SETS
from bertkit.training.journal import read_journal

PAGE, PICTURE, KEPT = "models.md", "models.svg", "models.json"
UNTRAINED, OTHERS = ("BLiMP", "word-in-context"), ("CoNLL-2003", "SQuAD")
HELD_OUT = ("MLM loss", "MLM accuracy", "NSP accuracy")
MOST_POINTS = 300  # of a curve
MISSING = "-"


@dataclass(frozen=True)
class Look:
    """At held-out text, on the way."""

    step: int
    minutes: float  # of training steps
    tokens: int
    mlm_loss: float
    mlm_accuracy: float
    nsp_accuracy: float

    def cells(self) -> list[str]:
        """Of a table, under HELD_OUT."""
        return [f"{self.mlm_loss:.3f}", f"{100 * self.mlm_accuracy:.1f}", f"{100 * self.nsp_accuracy:.1f}"]


@dataclass(frozen=True)
class TrainedModel:
    """What is shown of a run and of the model that it made."""

    name: str
    steps: int
    tokens: int
    seconds: float  # of training steps
    minutes: float  # from the first process to the last
    curve: Sequence[tuple[float, float]]  # minutes and training loss
    looks: Sequence[Look]
    scores: Mapping[
        str, tuple[float, ...]
    ]  # of a fine-tuned task: median and deviation over the seeds; else the accuracy
    average: float | None = None  # of the five
    remark: str = ""

    @classmethod
    def read(cls, name: str, folder: Path, seconds: float | None, remark: str) -> "TrainedModel":
        """From the folder of its run."""
        journal = read_journal(folder)
        steps = [line for line in journal if line["kind"] == "step"]
        if not steps:
            raise BertkitError(f"{folder} has no steps in its journal; name a folder that `bertkit pretrain` wrote")
        spent = list(accumulate(line["seconds"] / 60 for line in steps))
        read = list(accumulate(line["tokens"] for line in steps))
        at = {line["step"]: (minutes, tokens) for line, minutes, tokens in zip(steps, spent, read, strict=True)}
        looks = [
            Look(line["step"], *at[line["step"]], line["mlm_loss"], line["mlm_accuracy"], line["nsp_accuracy"])
            for line in journal
            if line["kind"] == "evaluation" and line["step"] in at
        ]
        curve = [(round(minutes, 3), round(line["mlm_loss"], 3)) for minutes, line in zip(spent, steps, strict=True)]
        results = folder / "suite" / "results.json"
        suite = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
        found = suite.get("tasks", {})
        scores: dict[str, tuple[float, ...]] = {
            name: (task["median"], task["deviation"]) for name, task in found.items()
        }
        scores |= {part: (suite[part]["accuracy"],) for part in UNTRAINED if "accuracy" in suite.get(part, {})}
        return cls(
            name,
            steps[-1]["step"],
            read[-1],
            60 * spent[-1],
            spent[-1] if seconds is None else seconds / 60,
            curve[:: max(1, len(curve) // MOST_POINTS)],
            looks,
            scores,
            suite.get("average_of_five"),
            remark,
        )

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "TrainedModel":
        """As models.json has it."""
        return cls(**{**kept, "looks": [Look(**look) for look in kept["looks"]]})

    def score(self, part: str) -> str:
        """Times 100, with the deviation where there are seeds."""
        return " ± ".join(f"{100 * value:.1f}" for value in self.scores.get(part, ())) or MISSING

    def run_row(self) -> list[str]:
        """What it took, and where it ended."""
        rate = f"{self.tokens / self.seconds / 1e6:.2f}"
        end = self.looks[-1].cells() if self.looks else [MISSING] * len(HELD_OUT)
        return [self.name, f"{self.minutes:.1f}", f"{self.steps:,}", f"{self.tokens / 1e9:.2f}", rate, *end]

    def score_row(self) -> list[str]:
        """The five tasks."""
        told = MISSING if self.average is None else f"**{self.average:.1f}**"
        return [f"**{self.name}**", *map(self.score, FIVE), told]


def google_rows() -> list[list[str]]:
    """What was published."""
    return [
        [f"{row.name} ({row.shape})", *(f"{row.scores[task]:.1f}" for task in FIVE), f"{row.average:.1f}"]
        for row in GOOGLE
    ]


def look_rows(models: Iterable[TrainedModel]) -> list[list[str]]:
    """Every look at held-out text on the way."""
    return [
        [model.name, f"{look.step:,}", f"{look.minutes:.1f}", f"{look.tokens / 1e9:.2f}", *look.cells()]
        for model in models
        for look in model.looks
    ]


def page(models: Sequence[TrainedModel]) -> str:
    """The whole page."""
    others = (*UNTRAINED, *OTHERS)
    parts = [
        "# Models of our own",
        "Each was trained by its recipe in [recipes](../recipes), as it was then, on one H200, from the text that "
        "`src/bertkit/bundled` describes and nothing else, and measured by `bertkit evaluate --suite`. Minutes are those "
        "of pre-training, from the first process to the last weights. What was tried on the way is in [log.md](log.md). "
        f"This page is written by `python -m bench.models`, from runs and from [{KEPT}]({KEPT}).",
        markdown_table(
            ("model", "minutes", "steps", "billion tokens", "million tokens/s", *HELD_OUT),
            [model.run_row() for model in models],
        ),
        "## Fine-tuned",
        "Medians of five seeds with their standard deviation; settings in [recipes/suite.toml](../recipes/suite.toml), "
        f"fixed before scoring and the same for all. {TEST_SETS}",
        *(f"{model.name}: {model.remark}" for model in models if model.remark),
        markdown_table(("model", *FIVE, "average"), [model.score_row() for model in models] + google_rows()),
        markdown_table(
            ("model", "BLiMP", "word in context", "CoNLL-2003, test F1", "SQuAD, dev F1"),
            [[model.name, *map(model.score, others)] for model in models]
            + [[name, f"{score:.1f}", "", "", ""] for name, score in BLIMP.items()],
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
        (line,) = loss.plot(*zip(*model.curve, strict=True), alpha=0.45, linewidth=1)
        looks = {"color": line.get_color(), "marker": "o", "markersize": 4, "label": model.name}
        minutes = [look.minutes for look in model.looks]
        loss.plot(minutes, [look.mlm_loss for look in model.looks], **looks)
        accuracy.plot(minutes, [100 * look.mlm_accuracy for look in model.looks], **looks)
    loss.set(xlabel="minutes", ylabel="MLM loss (line: training; dots: held out)", ylim=(1.8, 6))
    accuracy.set(xlabel="minutes", ylabel="held-out MLM accuracy, %")
    for axes in (loss, accuracy):
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    with matplotlib.rc_context({"svg.hashsalt": "models"}):  # the same picture from the same journals
        figure.savefig(path, metadata={"Date": None})


def read_kept(path: Path) -> dict[str, TrainedModel]:
    """Models by name, as they were shown last."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return {one["name"]: TrainedModel.from_json(one) for one in kept}


def to_json(models: Iterable[TrainedModel]) -> str:
    """A line a model."""
    return "[\n" + ",\n".join(json.dumps(asdict(model)) for model in models) + "\n]\n"


def parse_pairs(given: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, in order."""
    pairs = dict(one.split("=", 1) for one in given if "=" in one)
    if len(pairs) < len(given):
        raise BertkitError("give every run as NAME=FOLDER, each name once")
    return pairs


def main() -> None:
    """Read, write and name the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="NAME=RUN")
    parser.add_argument("--seconds", nargs="*", default=[], metavar="NAME=SECONDS")
    parser.add_argument("--remark", nargs="*", default=[], metavar="NAME=TEXT")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs"))
    given = parser.parse_args()
    try:
        runs, seconds, remarks = map(parse_pairs, (given.runs, given.seconds, given.remark))
        models = read_kept(given.out / KEPT)
        for name, folder in runs.items():
            took = float(seconds[name]) if name in seconds else None
            models[name] = TrainedModel.read(name, Path(folder), took, remarks.get(name, ""))
    except BertkitError as error:
        sys.exit(f"bench.models: {error}")
    given.out.mkdir(parents=True, exist_ok=True)
    shown = list(models.values())
    (given.out / KEPT).write_text(to_json(shown), encoding="utf-8")
    plot(shown, given.out / PICTURE)
    (given.out / PAGE).write_text(page(shown), encoding="utf-8")
    print(*(given.out / name for name in (PAGE, PICTURE, KEPT)))


if __name__ == "__main__":
    main()
