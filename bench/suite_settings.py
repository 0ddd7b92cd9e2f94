"""Which rate, how many epochs and how much dropout a task of the suite should have, found on a tenth of its training set:

    python -m bench.suite_settings -m MODEL --data DATA -o build/settings --rates 1e-4 2e-4 --epochs 5 10 [--dropout 0]

What the suite scores on is not looked at. SST-2's training set has many parts of each sentence, so there a tenth of the
whole sentences is held out, with all of their parts. The same call goes on where it was stopped.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from bertkit.errors import BertkitError
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.suite import run_suite
from bertkit.studies.suite_config import FinetunedTask, Suite, read_suite
from bertkit.studies.suite_results import TaskSummary
from bertkit.training.toml_text import to_plain, write_toml

TASKS = ("SST-2", "CoLA", "MRPC", "RTE", "STS-B")
EVERY = 10  # of the training lines is held out
LEAST_WORDS = 4  # of a part of a sentence; fewer may stand in any


def hold_out(source: Path, folder: Path, *, header: bool) -> None:
    """A training file's lines as folder/train.tsv and folder/dev.tsv."""
    lines = source.read_text(encoding="utf-8").rstrip("\n").split("\n")
    head, rest = (lines[:1], lines[1:]) if header else ([], lines)
    write_split(folder, head, [line for number, line in enumerate(rest) if number % EVERY], rest[::EVERY])


def hold_out_sentences(source: Path, folder: Path) -> None:
    """The same of whole sentences, those that are part of no other line; what is part of them is in neither file."""
    head, *lines = source.read_text(encoding="utf-8").rstrip("\n").split("\n")
    phrases = [" " + line.split("\t")[0].strip() + " " for line in lines]
    everything = "\n".join(phrases)
    equal = Counter(phrases)
    whole = [number for number, phrase in enumerate(phrases) if everything.count(phrase) == equal[phrase]]
    dev = whole[::EVERY]
    theirs = "\n".join(phrases[number] for number in dev)
    train = [
        line
        for line, phrase in zip(lines, phrases, strict=True)
        if phrase.count(" ") <= LEAST_WORDS or phrase not in theirs
    ]
    write_split(folder, [head], train, [lines[number] for number in dev])


def write_split(folder: Path, head: list[str], train: list[str], dev: list[str]) -> None:
    """train.tsv and dev.tsv."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, kept in (("train", train), ("dev", dev)):
        (folder / f"{name}.tsv").write_text("\n".join([*head, *kept]) + "\n", encoding="utf-8")


def variants(task: FinetunedTask, rates: Sequence[float], epochs: Sequence[int]) -> list[FinetunedTask]:
    """The task with each setting, on what `hold_out` wrote."""
    return [
        replace(
            task,
            name=f"{task.name}, {rate:g}, {num} epochs",
            train=(f"{task.name}/train.tsv",),
            test=f"{task.name}/dev.tsv",
            scored_on="a tenth of train",
            learning_rate=rate,
            epochs=num,
        )
        for rate, num in product(rates, epochs)
    ]


def prepare(
    suite: Suite,
    data: DataFolder,
    out: Path,
    rates: Sequence[float],
    epochs: Sequence[int],
    chosen: Sequence[str] = TASKS,
) -> list[str]:
    """The data folder and the suite.toml of all settings; the names of its tasks."""
    tasks = []
    for name in chosen:
        task = suite.task(name)
        source, folder = data.task_file(task.train[0]), out / "data" / "tasks" / name
        if name == "SST-2":
            hold_out_sentences(source, folder)
        else:
            hold_out(source, folder, header=bool(task.columns.get("header", True)))
        tasks += variants(task, rates, epochs)
    (out / "suite.toml").write_text(write_toml(to_plain(replace(suite, tasks=tuple(tasks)))), encoding="utf-8")
    return [task.name for task in tasks]


def table(tasks: Sequence[TaskSummary]) -> str:
    """Markdown, a row a setting."""
    rows = [
        f"| {task.name} | {100 * task.median:.1f} | {100 * min(task.scores):.1f} | {100 * max(task.scores):.1f} |"
        for task in tasks
    ]
    return "\n".join(["| setting | median | lowest | highest |", "|---|---|---|---|", *rows])


def main() -> None:
    """Make the sets, run every setting, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--data", help="the folder with tasks/; else BERTKIT_DATA")
    parser.add_argument("-o", "--out", type=Path, default=Path("build/settings"))
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 2e-4])
    parser.add_argument("--epochs", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--dropout", type=float, help="in place of the suite's; another -o for each")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, help="examples of each set, to try the way")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--workers", type=int, default=0)
    given = parser.parse_args()
    try:
        suite = read_suite()
        if given.dropout is not None:
            suite = replace(suite, dropout=given.dropout)
        names = prepare(suite, DataFolder.open(given.data), given.out, given.rates, given.epochs, given.tasks)
        outcome = run_suite(
            given.model,
            out=given.out / "runs",
            data=given.out / "data",
            tasks=names,
            seeds=given.seeds,
            limit=given.limit,
            recipe=given.out / "suite.toml",
            device=given.device,
            precision=given.precision,
            workers=given.workers,
        )
    except BertkitError as error:
        sys.exit(f"bench.suite_settings: {error}")
    print(table(outcome.results.tasks))


if __name__ == "__main__":
    main()
