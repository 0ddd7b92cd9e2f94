"""Cleaning removes what nobody sees and nothing else; equal paragraphs have equal keys."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bertkit.text.cleaning import clean_paragraph, paragraph_key

ANY = st.text(st.characters(), max_size=40)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Already clean: x² + 1 ≥ 0, “quoted” — and ﬁne…", None),
        ("हिन्दी می\u200cخواهم 👨\u200d👩\u200d👧", None),  # joiners that spelling depends on
        (" two\t\tspaces\u00a0here\u2003\u3000now\r\n", "two spaces here now"),
        ("page\x0cbreak line\u2028separator\x85next", "page break line separator next"),
        ("soft\u00adhyphen zero\u200bwidth \ufeffmark word\u2060joiner", "softhyphen zerowidth mark wordjoiner"),
        ("bell\x07 nul\x00 del\x7f c1\x9b", "bell nul del c1"),
        ("\u202eevil\u202c \u200fright\u200e \u2066in\u2069", "evil right in"),
        ("lost \ufffd\uffff half \ud800", "lost half"),
        ("cafe\u0301 A\u030angstro\u0308m", "café Ångström"),
        ("e\u200b\u0301", "é"),  # composed after the removal
        (" \u200b\t", ""),
        ("", ""),
    ],
)
def test_each_rule(text: str, cleaned: str | None) -> None:
    assert clean_paragraph(text) == (text if cleaned is None else cleaned)


@given(ANY)
@example("\u200b e\u0301")
@example("\x1c\x1d \x0b")
def test_cleaning_twice_changes_nothing_and_the_tokenizer_can_take_it(text: str) -> None:
    cleaned = clean_paragraph(text)
    assert clean_paragraph(cleaned) == cleaned
    assert cleaned == " ".join(cleaned.split())
    cleaned.encode()


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), max_size=40))
def test_plain_text_is_left_alone(text: str) -> None:
    assert clean_paragraph(text) == text


def test_keys() -> None:
    keys = [paragraph_key(text) for text in ("one", "two", "one")]
    assert keys[0] == keys[2] != keys[1]
    assert paragraph_key("one") == bytes.fromhex("34f2ddaa8b7615c9"), "the same on every machine and in every version"
    assert [len(paragraph_key("one", size)) for size in (8, 16)] == [8, 16]
    assert np.frombuffer(b"".join(keys), "<u8").tolist() == [int.from_bytes(key, "little") for key in keys]
    assert paragraph_key(clean_paragraph("cafe\u0301  au lait")) == paragraph_key("café au lait")
