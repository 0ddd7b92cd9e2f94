"""The best legal span against all spans tried, over windows too, and offsets that hold for any text."""

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import BertkitError, LongTextWarning
from bertkit.tasks.answering.context import AnswerWindow, ContextTokens, read_contexts
from bertkit.tasks.answering.spans import AnswerOptions, predict_answer, rank_spans
from bertkit.tasks.answering.task import AnsweringTask
from bertkit.tasks.reading.examples import QuestionExample
from bertkit.tokenizer import train_vocabulary
from bertkit.tokenizer.fitting import Limit
from tests.tokenizer.strings import PROSE, generated_strings

TOKENIZER = train_vocabulary(PROSE * 3, size=400, lowercase=True)


def words_context(num_tokens: int, word_of: list[int] | None = None) -> ContextTokens:
    """Tokens t0 t1 ..., each a word of its own unless told otherwise."""
    texts = [f"t{token}" for token in range(num_tokens)]
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)])[:num_tokens].astype(np.int64)
    ends = starts + np.array([len(text) for text in texts], dtype=np.int64)
    words = np.array(word_of if word_of is not None else range(num_tokens))
    begins = np.append([True], words[1:] != words[:-1])[:num_tokens]
    ends_word = np.append(words[1:] != words[:-1], [True])[-num_tokens:]
    return ContextTokens(" ".join(texts), list(range(num_tokens)), starts, ends, begins, ends_word)


def logits_of(row: int, starts: list[float], ends: list[float], cls: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """[CLS], the question's rows far up to tempt, the context, [SEP] tempting too."""
    body = np.stack([np.array(starts), np.array(ends)], axis=1)
    return np.concatenate([[cls], np.full((row - 1, 2), 50.0), body, [[50.0, 50.0]]]).astype(np.float32)


def test_the_best_legal_span_by_hand() -> None:
    context = words_context(5)
    window = AnswerWindow(context, 0, 5, row=3)
    # The best start is behind the best end, so the best pair is (1, 3) with 4 + 3.
    scores = logits_of(3, [0.0, 4.0, 0.0, 0.0, 5.0], [0.0, 0.0, 0.0, 3.0, 0.5], cls=(1.0, 2.0))
    prediction = predict_answer([window], [scores], AnswerOptions())
    assert (prediction.text, prediction.score, prediction.no_answer_score) == ("t1 t2 t3", 7.0, 3.0)
    assert context.text[prediction.start : prediction.end] == prediction.text
    assert [span.text for span in prediction.runners_up] == ["t4", "t1 t2 t3 t4", "t1", "t1 t2"]
    assert [span.score for span in prediction.runners_up] == [5.5, 4.5, 4.0, 4.0]
    short = predict_answer([window], [scores], AnswerOptions(max_answer_tokens=2, top_k=1))
    assert (short.text, short.runners_up) == ("t4", ())


def test_spans_begin_and_end_at_words() -> None:
    window = AnswerWindow(words_context(4, [0, 0, 1, 1]), 0, 4, row=2)
    scores = logits_of(2, [0.0, 9.0, 1.0, 0.0], [0.0, 0.0, 9.0, 1.0])
    assert predict_answer([window], [scores], AnswerOptions()).text == "t2 t3"
    assert predict_answer([window], [scores], AnswerOptions(whole_words=False)).text == "t1 t2"


def test_no_answer_is_the_lowest_over_windows_against_a_threshold() -> None:
    context = words_context(4)
    windows = [AnswerWindow(context, 0, 2, row=2), AnswerWindow(context, 2, 4, row=2)]
    logits = [
        logits_of(2, [1.0, 0.0], [1.0, 0.0], cls=(4.0, 4.0)),
        logits_of(2, [3.0, 0.0], [2.0, 0.0], cls=(3.0, 3.0)),
    ]
    always = predict_answer(windows, logits, AnswerOptions())
    assert (always.text, always.score, always.no_answer_score, always.no_answer_lead) == ("t2", 5.0, 6.0, 1.0)
    none = predict_answer(windows, logits, AnswerOptions(no_answer_threshold=0.5))
    assert (none.text, none.start, none.end, none.score) == ("", 0, 0, 5.0)
    assert none.runners_up[0].text == "t2"
    assert none.best_span == none.runners_up[0]
    assert none.confidence > none.runners_up[0].confidence
    assert predict_answer(windows, logits, AnswerOptions(no_answer_threshold=1.0)).text == "t2"


def test_the_confidences_are_shares() -> None:
    window = AnswerWindow(words_context(2), 0, 2, row=2)
    scores = logits_of(2, [0.0, 0.0], [np.log(3.0), 0.0], cls=(0.0, 0.0))
    spans = rank_spans([window], [scores], AnswerOptions())
    assert len(spans) == 3
    # exp of the three scores: 3, 1, 1; with no answer one more.
    prediction = predict_answer([window], [scores], AnswerOptions())
    assert prediction.confidence == pytest.approx(3 / 5)
    assert predict_answer([window], [scores], AnswerOptions(no_answer_threshold=0.0)).confidence == pytest.approx(3 / 6)


def test_a_span_in_two_windows_is_judged_where_it_has_most_context() -> None:
    context = words_context(8)
    windows = [AnswerWindow(context, 0, 5, row=2), AnswerWindow(context, 3, 8, row=2)]
    low, high = [0.0] * 5, [0.0] * 5
    # Token 4 is the last of the first window and has one neighbour in the second: the second judges it.
    first = [0.0, 0.0, 0.0, 0.0, 9.0]
    prediction = predict_answer(windows, [logits_of(2, first, first), logits_of(2, low, high)], AnswerOptions())
    assert prediction.score < 18.0
    # Token 3 is the first of the second window: the first judges it.
    second = [9.0, 0.0, 0.0, 0.0, 0.0]
    prediction = predict_answer(windows, [logits_of(2, low, high), logits_of(2, second, second)], AnswerOptions())
    assert prediction.score < 18.0
    # Each counts where it is judged.
    prediction = predict_answer(windows, [logits_of(2, second[::-1], low), logits_of(2, low, high)], AnswerOptions())
    assert prediction.score == 0.0
    third = [0.0, 9.0, 0.0, 0.0, 0.0]
    prediction = predict_answer(windows, [logits_of(2, low, low), logits_of(2, third, third)], AnswerOptions())
    assert (prediction.text, prediction.score) == ("t4", 18.0)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 5), st.booleans(), st.integers(0, 2))
def test_ranks_are_those_of_all_spans_tried(seed: int, num_tokens: int, widest: int, whole: bool, shared: int) -> None:
    generator = np.random.default_rng(seed)
    context = words_context(num_tokens, np.cumsum(generator.integers(0, 2, num_tokens)).tolist())
    bounds = [(start, min(start + 5, num_tokens)) for start in range(0, max(1, num_tokens - shared), 5 - shared)]
    windows = [AnswerWindow(context, start, stop, row=3) for start, stop in bounds]
    logits = [generator.normal(size=(stop - start + 4, 2)).astype(np.float32) for start, stop in bounds]
    options = AnswerOptions(max_answer_tokens=widest, whole_words=whole)
    expected: dict[tuple[int, int], float] = {}
    for first, last in product(range(num_tokens), repeat=2):
        if not 0 <= last - first < widest or (whole and not (context.begins_word[first] and context.ends_word[last])):
            continue
        holding = [
            (
                min(float("inf") if a == 0 else first - a, float("inf") if b == num_tokens else b - 1 - last),
                -index,
            )
            for index, (a, b) in enumerate(bounds)
            if a <= first and last < b
        ]
        if holding:
            index = -max(holding)[1]
            rows = logits[index][3:]
            start, end = rows[first - bounds[index][0], 0], rows[last - bounds[index][0], 1]
            expected[first, last] = float(start) + float(end)
    if not expected:
        return  # one long word: see below
    found = rank_spans(windows, logits, options)
    best = sorted(expected.items(), key=lambda pair: (-pair[1], pair[0]))[: options.num_candidates]
    assert [span.score for span in found] == pytest.approx([score for _, score in best])
    places = [(int(context.starts[first]), int(context.ends[last])) for (first, last), _ in best]
    assert [(span.start, span.end) for span in found] == places


def test_of_a_word_longer_than_an_answer_a_part_is_given() -> None:
    window = AnswerWindow(words_context(3, [0, 0, 0]), 0, 3, row=2)
    scores = logits_of(2, [0.0, 9.0, 0.0], [0.0, 0.0, 5.0])
    assert predict_answer([window], [scores], AnswerOptions(max_answer_tokens=2)).text == "t1 t2"
    assert predict_answer([window], [scores], AnswerOptions()).text == "t0 t1 t2"


def check_answer(question: str, text: str, max_length: int, seed: int, threshold: float | None) -> None:
    task = AnsweringTask(AnswerOptions(no_answer_threshold=threshold))
    example = QuestionExample("1", question, text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        items = task.encode([example], TOKENIZER, Limit(max_length, "window"))
    generator = np.random.default_rng(seed)
    logits = [generator.normal(size=(len(item.ids), 2)).astype(np.float32) for item in items]
    (prediction,) = task.decode([example], items, logits)
    assert text[prediction.start : prediction.end] == prediction.text
    assert prediction.text == prediction.text.strip()
    for span in prediction.runners_up:
        assert text[span.start : span.end] == span.text
        assert span.text
    assert read_contexts([text], TOKENIZER)[text].ids == [] or prediction.best_span is not None


def test_answers_stand_where_they_say_in_odd_texts() -> None:
    for seed, text in enumerate(generated_strings(300, seed=3)):
        check_answer("who is it?", text, 12 + seed % 30, seed, None if seed % 2 else 0.0)


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text(alphabet=st.one_of(st.sampled_from("ab'. \u0301中é"), st.characters(exclude_categories=["Cs"]))),
    st.integers(5, 40),
    st.integers(0, 100),
)
def test_answers_stand_where_they_say_in_any_text(question: str, text: str, max_length: int, seed: int) -> None:
    check_answer(question, text, max_length, seed, None)


def test_impossible_options() -> None:
    with pytest.raises(BertkitError, match="top_k is 0; it must be at least 1"):
        AnswerOptions(top_k=0)
