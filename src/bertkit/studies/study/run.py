"""`bertkit study`: one of the paper's findings run again, by one command that may be killed and repeated.

In: a study's name, a scale, the data folder. Out: OUT/NAME/result.json and report.html; OUT/parts/ and OUT/runs/ are
shared by all studies of one folder, so that a run that two of them need is trained once.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.pages.frame import save
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.findings.figures import page_of
from bertkit.studies.study.config import StudyRecipe, read_study
from bertkit.studies.study.registry import STUDIES, call_study
from bertkit.studies.study.request import StudyOutcome, StudyRequest
from bertkit.studies.study.result import RESULT, StudyResult, read_result
from bertkit.studies.study.text import given_text
from bertkit.studies.study.wording import names_of
from bertkit.studies.suite_config import read_suite

PAGE = "report.html"
NO_TIME = 1e-9  # minutes


def run_study(
    name: str,
    *,
    out: str | Path,
    scale: str = "minutes",
    data: str | Path | None = None,
    store: str = "",
    tokenizer: str = "",
    held_out: str = "",
    models: Sequence[str] = (),
    changes: Sequence[str] = (),
    seeds: int | None = None,
    minutes: float | None = None,
    device: str = "auto",
    workers: int = 0,
    recipe: str | Path | None = None,
    suite: str | Path | None = None,
    cache: str | Path | None = None,
    command: str = "",
    shown: bool = True,
) -> StudyOutcome:
    """Run a study, or go on with it; `minutes` stops in time, and the same call goes on."""
    started = time.monotonic()
    if minutes is not None and minutes <= 0:
        raise BertkitError(f"minutes is {minutes}; give more than 0")
    read = read_study(name, changes, path=recipe, seeds=seeds)
    read.at(scale)  # refused before anything else is looked at
    refuse_other_scale(read, scale, Path(out))
    folder = DataFolder.open(data, cache)
    outcome = call_study(
        StudyRequest(
            recipe=read,
            scale_name=scale,
            data=folder,
            out=Path(out),
            suite=read_suite(suite),
            text=given_text(folder, store, tokenizer, held_out),
            device=device,
            workers=workers,
            models=tuple(models),
            command=command,
            ends_at=None if minutes is None else started + 60.0 * minutes,
            shown=shown,
            started=started,
        )
    )
    save(outcome.folder / PAGE, page_of([outcome.result]))
    return outcome


def run_studies(name: str, *, minutes: float | None = None, command: str = "", **settings: Any) -> list[StudyOutcome]:
    """One study, or with `all` every one in turn; when the time is up, the rest say only what they lack."""
    names, started = list(STUDIES) if name == "all" else [name], time.monotonic()
    outcomes: list[StudyOutcome] = []
    for one in names:
        left = None if minutes is None else max(minutes - (time.monotonic() - started) / 60, NO_TIME)
        said = command.replace("study all", f"study {one}", 1)
        outcomes.append(run_study(one, minutes=left, command=said, **settings))
        if (outcomes[-1].stopped_by or "").startswith("SIG"):
            break
    return outcomes


def write_up(out: str | Path, docs: str | Path) -> Path:
    """Every result of a folder as one document with its pictures."""
    from bertkit.studies.findings.document import write_findings

    known = {name: number for number, name in enumerate(STUDIES)}
    results = [with_remark(read_result(path)) for path in sorted(Path(out).glob(f"*/{RESULT}"))]
    if not results:
        raise BertkitError(f"{out} holds no results; run `bertkit study NAME -o {out}` first")
    return write_findings(sorted(results, key=lambda result: known.get(result.name, len(known))), docs)


def with_remark(result: StudyResult) -> StudyResult:
    """What the recipe remarks on this scale by now: results may have been measured elsewhere, and before.

    Of other models than the recipe's it does not speak.
    """
    if result.name not in STUDIES:
        return result
    scale = read_study(result.name).at(result.scale)
    is_of_them = names_of(scale.models) == result.about.get("models", "")
    return replace(result, remark=scale.remark) if scale.remark and is_of_them else result


def refuse_other_scale(recipe: StudyRecipe, scale: str, out: Path) -> None:
    """A result is not replaced by one of another scale."""
    path = out / recipe.name / RESULT
    if path.is_file() and (found := read_result(path).scale) != scale:
        raise BertkitError(f"{path.parent} holds a result of scale {found}; give another folder with -o")
