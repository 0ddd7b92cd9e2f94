"""Placeholders are filled once, text is escaped, data cannot leave its script element."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.pages.frame import Html, embed_json, fill, frame, inline, save
from tests.pages.reading import Page, assert_self_contained

HOSTILE = "</script><img src=x onerror=alert(1)><!-- {{data}} & \u2028"


def test_text_is_escaped_and_not_filled_again() -> None:
    page = frame(HOSTILE, HOSTILE, Html("<p>body</p>"), {"text": HOSTILE}, warning=HOSTILE)
    parsed = Page(page)
    assert parsed.text["h1"] == HOSTILE
    assert parsed.data == {"text": HOSTILE}
    assert not [tag for tag, _ in parsed.tags if tag == "img"]


def test_styles_of_the_body_move_to_the_head() -> None:
    page = frame("t", "l", Html("<style>.x { color: red }</style><p>body</p>"), {})
    assert page.index(".x { color: red }") < page.index("</head>")
    assert page.count(".x { color: red }") == 1
    assert_self_contained(page)


def test_every_template_names_only_known_placeholders() -> None:
    with pytest.raises(KeyError):
        fill("frame", title="t")


def test_a_module_becomes_one_statement_that_names_its_exports() -> None:
    script = inline("uses.js")
    assert script.startswith("const { colourUses, listUses, cosineTable, plane } = (() => {")
    assert script.endswith("return { colourUses, listUses, cosineTable, plane };\n})();")
    assert "import {" not in script
    assert "export " not in script


@given(st.text())
def test_json_survives_and_never_closes_its_element(text: str) -> None:
    embedded = embed_json({"text": text})
    assert "<" not in embedded
    assert json.loads(embedded) == {"text": text}


def test_figures_that_are_not_finite_are_refused() -> None:
    with pytest.raises(BertkitError, match="not finite"):
        embed_json([float("nan")])


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match=r"cannot write .*missing"):
        save(tmp_path / "missing" / "page.html", "page")
