"""The frame that every page shares, and the only place where data enters HTML.

In: the name of a template beside this file and plain data. Out: one HTML string that needs nothing else.
Placeholders are written {{name}}; text put there is escaped, and data travels as JSON that cannot end its script.
{{name.js}} and {{name.css}} are files of parts/, which the served page loads as they are.
"""

import html
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import bertkit
from bertkit.errors import BertkitError

PLACEHOLDER = re.compile(r"\{\{([\w.]+)\}\}")
IMPORT = re.compile(r"^import .*\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:const|function) (\w+))", re.MULTILINE)
STYLE = re.compile(r"<style>.*?</style>\s*", re.DOTALL)


class Html(str):
    """A string that is markup already and is not escaped again."""


def fill(name: str, **parts: str) -> Html:
    """The template of this name with its placeholders filled, in one pass."""
    template = resources.files(__package__).joinpath(f"{name}.html").read_text(encoding="utf-8")
    return Html(
        PLACEHOLDER.sub(lambda match: inline(match[1]) if "." in match[1] else _escaped(parts[match[1]]), template)
    )


def inline(name: str) -> Html:
    """A file of parts/; a script's exports become names of the page, and what it keeps to itself stays inside."""
    text = resources.files(__package__).joinpath("parts", name).read_text(encoding="utf-8").rstrip()
    exports = ", ".join(EXPORT.findall(text))
    if not exports:
        return Html(text)
    body = EXPORT.sub("", IMPORT.sub("", text))
    return Html(f"const {{ {exports} }} = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();")


def frame(title: str, label: str, body: Html, data: Any, *, warning: str = "") -> str:
    """A whole page: the body's styles move to the head, and the data is there before its scripts."""
    box = f'<p class="warning">{html.escape(warning)}</p>' if warning else ""
    return fill(
        "frame",
        title=title,
        label=label,
        warning=Html(box),
        styles=Html("".join(STYLE.findall(body))),
        body=Html(STYLE.sub("", body)),
        data=embed_json(data),
        version=bertkit.__version__,
    )


def embed_json(value: Any) -> Html:
    """JSON that is safe inside a script element: no character of it can end the element or begin a comment."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise BertkitError("a figure of this page is not finite; check the checkpoint's weights") from error
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(text)


def save(path: Path, page: str) -> None:
    """Write a page; a place that cannot be written is one clear line."""
    try:
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise BertkitError(f"cannot write {path}: {error.strerror}; choose another place") from error


def _escaped(part: str) -> str:
    return part if isinstance(part, Html) else html.escape(part)
