"""What commands print: JSON for programs, tables for people, notes on standard error."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table


def print_json(value: Any) -> None:
    """One JSON document on standard output; a figure that is not finite is null, which every reader knows."""
    try:
        written = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    except ValueError:
        from bertkit.text.findings import finite_or_null

        written = json.dumps(finite_or_null(value), ensure_ascii=False, indent=2)
    sys.stdout.write(written + "\n")


def note(message: str) -> None:
    """A line for people that does not disturb what programs read."""
    print(message, file=sys.stderr)


def console() -> "Console":
    """The terminal; the users' texts are shown as they are, not read as markup."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def table(*columns: str, title: str | None = None) -> "Table":
    """An empty table with these headings; numbers are right-aligned by the caller's justify."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column)
    return made


@contextmanager
def progress_counter(unit: str) -> Iterator[Callable[[int], None]]:
    """A live line on standard error: how many of something are done, and how fast."""
    with _progress(f"{{task.completed:,.0f}} {unit}", f"{{task.speed:,.0f}} {unit}/s") as shown:
        task = shown.add_task(unit, total=None)
        yield lambda count: shown.advance(task, count)


@contextmanager
def progress_bar(name: str, total: int) -> Iterator[Callable[[str], None]]:
    """A live line on standard error for a known number of steps; each step says how things stand."""
    with _progress(name, "{task.completed}/{task.total}", "{task.description}") as shown:
        task = shown.add_task("", total=total)
        yield lambda status: shown.update(task, advance=1, description=status)


def _progress(*columns: str) -> "Progress":
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    texts = [TextColumn(column) for column in columns]
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    hidden = not sys.stderr.isatty()
    return Progress(SpinnerColumn(), *texts, *times, console=Console(stderr=True), transient=True, disable=hidden)
