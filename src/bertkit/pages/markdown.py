"""A table as Markdown, for reports and cards: cells in, text out."""

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A column whose head begins with # holds numbers, as on the pages."""
    rule = ["---:" if name.startswith("#") else "---" for name in head]
    lines = [[name.removeprefix("#") for name in head], rule, *rows]
    return "\n".join("| " + " | ".join(plain_cell(cell) for cell in line) + " |" for line in lines)


def plain_cell(text: str) -> str:
    """A bar would end the cell, a line break the table."""
    return " ".join(text.replace("|", "\\|").split())
