"""The documents tell the truth about the tree: links lead to files, and the paper's guide names code that exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "docs" / "paper.md"
NAMING = [PAPER, ROOT / "docs" / "sizes.md", ROOT / "docs" / "formats.md"]  # their backticked links are names in code
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *(path for path in [ROOT / "README.md"] if path.is_file())]

FENCE = re.compile(r"^( *)```.*?^ *```[^\n]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#|//")  # another scheme, this page, another host
CODE_NAME = re.compile(r"`([\w.]+)(?:\(\))?`")


def links(page: Path) -> Iterator[tuple[str, Path]]:
    """Text and target of every relative link of a page, outside of fenced code."""
    for match in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if not ELSEWHERE.match(match["target"]):
            yield match["text"], page.parent / match["target"].partition("#")[0]


def broken_links(page: Path) -> list[str]:
    return [str(target) for _, target in links(page) if not target.exists()]


def named_code(page: Path) -> list[tuple[str, Path]]:
    """Every link to a Python file whose text is one name in backticks."""
    named = ((CODE_NAME.fullmatch(text), target) for text, target in links(page))
    return [(match[1], target) for match, target in named if match and target.suffix == ".py"]


def defined_names(file: Path) -> set[str]:
    """Functions and classes by name, methods as Class.method."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return names


def unknown_names(page: Path) -> list[str]:
    named = named_code(page)
    defined = {file: defined_names(file) if file.is_file() else set() for file in {file for _, file in named}}
    return [f"{name} in {file.name}" for name, file in named if name not in defined[file]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.name)
def test_every_linked_name_is_defined_in_its_file(page: Path) -> None:
    assert unknown_names(page) == []


def test_the_guide_to_the_paper_names_code_of_every_room() -> None:
    named = named_code(PAPER)
    to_code = [text for text, target in links(PAPER) if target.suffix == ".py"]
    assert len(named) == len(to_code), "a link to code whose text is no single name"
    rooms = {file.resolve().relative_to(ROOT / "src" / "bertkit").parts[0] for _, file in named}
    assert rooms >= {"tokenizer", "corpus", "model", "tasks", "training", "inference"}


def test_the_readme_names_every_folder() -> None:
    _, _, tree = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What is where")
    named = set(re.findall(r"(\w+)/", tree.partition("\n## ")[0]))
    package = ROOT / "src" / "bertkit"
    folders = {path.parent for path in package.rglob("*.*") if "__pycache__" not in path.parts}
    inside = {
        part for folder in folders for part in folder.relative_to(package).parts if package / "bundled" != folder.parent
    }
    assert inside - named == set()


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("def here(): ...\nclass Thing:\n    def method(self): ...\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[`here`](code.py) [`Thing.method`](code.py) [`there`](code.py#L1) [`Thing.other`](code.py) [`method`](code.py)\n"
        "[gone](gone.md) [far](https://example.org/gone.md) [above](#top)\n"
        "```\n[`fenced`](nowhere.py)\n```\n"
    )
    assert broken_links(page) == [str(tmp_path / "gone.md")]
    assert unknown_names(page) == ["there in code.py", "Thing.other in code.py", "method in code.py"]
