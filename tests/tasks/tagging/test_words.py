"""Plain text to words: cut at spaces and marks, joined where a mark is inside a name, never a character misplaced."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.tasks.tagging.words import cut_text
from bertkit.tokenizer import Tokenizer, train_vocabulary
from tests.tokenizer.strings import PROSE, generated_strings

UNCASED = train_vocabulary(PROSE * 3, size=400, lowercase=True)
CASED = train_vocabulary(PROSE * 3, size=400, lowercase=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Wolfgang lives in Berlin.", "Wolfgang|lives|in|Berlin|."),
        ("(O'Brien-Smith, U.S.)", "(|O'Brien-Smith|,|U.S.|)"),
        ("Wolfgang's dog, the Jones' car", "Wolfgang|'s|dog|,|the|Jones|'|car"),
        ("Zoe’s O’Hara didn't", "Zoe|’s|O’Hara|didn't"),
        ("AT&T paid 1,000.50 at 10:30, on 3/5/2014", "AT&T|paid|1,000.50|at|10:30|,|on|3/5/2014"),
        ("Berlin,Paris and/or Rome", "Berlin|,|Paris|and|/|or|Rome"),
        ("wait... no--yes", "wait|.|.|.|no|-|-|yes"),
        ("中文 in Taipei市", "中|文|in|Taipei|市"),
        ("cafe\u0301 Zoe\u0308.", "cafe\u0301|Zoe\u0308|."),
        ("", ""),
        (" \u200b \t", ""),
    ],
)
def test_words_by_hand(text: str, words: str) -> None:
    for tokenizer in (UNCASED, CASED):
        assert "|".join(cut_text(text, tokenizer).words) == words


def check(text: str, tokenizer: Tokenizer) -> None:
    example = cut_text(text, tokenizer)
    assert example.text == text
    assert example.spans is not None
    assert [text[start:end] for start, end in example.spans] == list(example.words)
    flat = [place for span in example.spans for place in span]
    assert flat == sorted(flat), "words in order, none inside another"
    assert all(start < end for start, end in example.spans)
    # Word by word or as a whole, the model reads the same pieces.
    whole = tokenizer.encode_ids([text])[0]
    assert [piece for word in tokenizer.encode_ids(example.words) for piece in word] == whole


def test_odd_texts_are_read_as_a_whole_would_be() -> None:
    for text in generated_strings(600, seed=4) + PROSE:
        check(text, UNCASED)
        check(text, CASED)


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet=st.one_of(st.sampled_from("ab'’.-,1 \u0301中é\u200b"), st.characters(exclude_categories=["Cs"])))
)
def test_any_text(text: str) -> None:
    check(text, UNCASED)
