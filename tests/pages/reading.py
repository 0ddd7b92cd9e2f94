"""Reading a page as a browser's parser does: which elements it has, and the data inside."""

import json
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """Tags with their attributes, and the text inside each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "br"}:
            self._open.append("data" if dict(attrs).get("id") == "data" else tag)

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for name in self._open:
            self.text[name] = self.text.get(name, "") + data

    @property
    def data(self) -> Any:
        """What the page's scripts read."""
        return json.loads(self.text["data"])


def assert_self_contained(page: str) -> Page:
    """Nothing is loaded, nothing is sent, and nothing that users wrote became an element."""
    assert "http://" not in page
    assert "https://" not in page
    parsed = Page(page)
    for tag, attributes in parsed.tags:
        assert tag not in {"img", "iframe", "link", "object", "embed", "base", "form"}
        assert not {"src", "onerror", "onload", "action"} & set(attributes)
        assert attributes.get("href", "#").startswith("#")  # type: ignore[union-attr]
    assert parsed.text["title"]
    assert page.count("Content-Security-Policy") == 1
    return parsed
