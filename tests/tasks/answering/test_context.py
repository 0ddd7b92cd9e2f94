"""Contexts as tokens and windows: where tokens stand, which hold an answer, and what is cut is said."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import LongTextError
from bertkit.tasks.answering.context import ContextTokens, frame, read_contexts, summarise
from bertkit.tokenizer import train_vocabulary
from bertkit.tokenizer.fitting import Limit
from tests.tokenizer.strings import PROSE, generated_strings

TOKENIZER = train_vocabulary(PROSE * 3, size=400, lowercase=True)


def context_of(text: str) -> ContextTokens:
    return read_contexts([text], TOKENIZER)[text]


def test_tokens_by_hand() -> None:
    text = "The Zoe\u0308s, 日本."
    context = context_of(text)
    words = [text[start:end] for start, end in zip(context.starts, context.ends, strict=True)]
    assert words[0] == "The"
    assert words[-4:] == [",", "日", "本", "."]
    assert context.begins_word[[0, -4, -3, -2, -1]].all()
    zoe = context.find(4, 9)
    assert zoe is not None
    assert text[context.starts[zoe[0]] : context.ends[zoe[1]]] == "Zoe\u0308s"
    assert context.begins_word[zoe[0]]
    assert context.ends_word[zoe[1]]


def test_answers_are_found_by_their_characters() -> None:
    context = context_of("the man went to the store")
    assert context.find(4, 7) == (1, 1)
    assert context.find(4, 12) == (1, 2)
    assert context.find(3, 8) == (1, 1)  # spaces belong to nothing
    assert context.find(5, 6) == (1, 1)  # half a word is in its token
    assert context.find(0, 25) == (0, 5)
    assert context.find(3, 4) is None
    assert context_of("").find(0, 0) is None


def check_context(text: str) -> None:
    context = context_of(text)
    assert sorted(context.starts.tolist()) == context.starts.tolist()
    assert sorted(context.ends.tolist()) == context.ends.tolist()
    assert (context.starts < context.ends).all()
    assert len(context.ids) == len(context.starts)
    if len(context.ids):
        assert context.begins_word[0]
        assert context.ends_word[-1]
        assert int(context.begins_word.sum()) == int(context.ends_word.sum())
    for token, (start, end) in enumerate(zip(context.starts.tolist(), context.ends.tolist(), strict=True)):
        found = context.find(start, end)
        assert found is not None
        assert found[0] <= token <= found[1]


def test_odd_contexts() -> None:
    for text in generated_strings(500, seed=9):
        check_context(text)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.one_of(st.sampled_from("ab'. \u0301中é\u200b한"), st.characters(exclude_categories=["Cs"]))))
def test_any_context(text: str) -> None:
    check_context(text)


def test_windows_by_hand() -> None:
    context = context_of("the man went to the store in the city")  # nine tokens
    framed = frame([7, 8], context, Limit(9, "window", 1), 64, "it")  # room for four
    assert [(window.start, window.stop) for window in framed.windows] == [(0, 4), (3, 7), (6, 9)]
    assert {window.row for window in framed.windows} == {4}
    said = summarise([framed, frame([7], context, Limit(None), 64, "it")], Limit(9, "window"))
    assert said == "with more than 9 tokens: 1 of 2 contexts was split into 3 windows"


def test_a_long_question_is_cut_and_that_is_said() -> None:
    context = context_of("the man")
    framed = frame(list(range(10)), context, Limit(13, "window"), 4, "it")
    assert framed.question == [0, 1, 2, 3]
    assert "1 of 1 question was cut, 6 tokens from its end" in (summarise([framed], Limit(13)) or "")
    # However long it may be, half of the room is the context's.
    assert len(frame(list(range(10)), context, Limit(9, "window"), 64, "it").question) == 3
    assert summarise([frame([1], context, Limit(13), 64, "it")], Limit(13)) is None


def test_errors_and_truncation() -> None:
    context = context_of("the man went to the store")
    with pytest.raises(LongTextError, match=r"the question has 11 tokens with its context.* the limit is 8"):
        frame([1, 2], context, Limit(8, "error"), 64, "the question")
    with pytest.raises(LongTextError, match="cannot share 4; choose a stride below 3"):
        frame([1, 2], context, Limit(8, "window", 4), 64, "it")
    framed = frame([1, 2], context, Limit(8, "truncate"), 64, "it")
    assert [(window.start, window.stop, window.num_cut) for window in framed.windows] == [(0, 3, 3)]
    assert "1 of 1 context was cut, 3 tokens from its end" in (summarise([framed], Limit(8)) or "")


@given(st.integers(0, 40), st.integers(0, 60), st.integers(4, 30), st.one_of(st.none(), st.integers(0, 3)))
def test_any_lengths(num_question: int, num_words: int, max_length: int, stride: int | None) -> None:
    context = context_of(" ".join(["the"] * num_words))
    try:
        framed = frame(list(range(num_question)), context, Limit(max_length, "window", stride), 64, "it")
    except LongTextError:
        assert stride is not None
        return
    covered = set()
    for window in framed.windows:
        assert len(framed.question) + 3 + window.stop - window.start <= max_length
        assert window.row == len(framed.question) + 2
        covered |= set(range(window.start, window.stop))
    assert covered == set(range(num_words))
    assert len(framed.question) + framed.question_cut == num_question


def test_what_is_cut_shares_nothing_so_a_stride_does_not_matter() -> None:
    context = context_of("the man went to the store in the city")
    (window,) = frame([7, 8], context, Limit(9, "truncate", 100), 64, "it").windows
    assert (window.start, window.stop, window.num_cut) == (0, 4, 5)
