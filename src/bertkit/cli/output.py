"""What commands print: JSON for programs, tables for people, notes on standard error."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def note(message: str) -> None:
    """A line for people that does not disturb what programs read."""
    print(message, file=sys.stderr)


def console() -> "Console":
    """The terminal."""
    from rich.console import Console

    return Console(highlight=False)


def table(*columns: str, title: str | None = None) -> "Table":
    """An empty table with these headings; numbers are right-aligned by the caller's justify."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column)
    return made


@contextmanager
def progress_counter(unit: str) -> Iterator[Callable[[int], None]]:
    """A live line on standard error with what is done, its rate and the time passed."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown = Progress(
        SpinnerColumn(),
        TextColumn(f"{{task.completed:,.0f}} {unit}"),
        TextColumn(f"{{task.speed:,.0f}} {unit}/s"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with shown:
        task = shown.add_task(unit, total=None)
        yield lambda count: shown.advance(task, count)
