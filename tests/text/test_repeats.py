"""Copies, near copies and boilerplate: shares that are right also when memory allows only a part to be followed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.text.repeats import LEAST_CHARACTERS, LineCounter, RepeatCounter, Repeats, bare


def sentence(number: int) -> str:
    return f"{number} sentences of exactly the same length ".ljust(60, "x")


def test_the_share_of_characters_that_were_there_before() -> None:
    counter = RepeatCounter()
    for number in [*range(70), *range(30)]:
        counter.add(sentence(number))
    assert counter.share == pytest.approx(0.30)


def test_short_texts_may_come_as_often_as_they_like() -> None:
    counter = RepeatCounter()
    for _ in range(10):
        counter.add("Yes.")
        counter.add("x" * (LEAST_CHARACTERS - 1))
    assert counter.share == 0.0


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200))
@settings(max_examples=50)
def test_without_thinning_it_is_exact(numbers: list[int]) -> None:
    counter = RepeatCounter()
    for number in numbers:
        counter.add(sentence(number))
    assert counter.share == pytest.approx(1 - len(set(numbers)) / len(numbers))


def test_memory_is_bounded_and_the_share_stays() -> None:
    counter = RepeatCounter(max_keys=500)
    for number in [*range(14_000), *range(6_000)]:
        counter.add(sentence(number))
    assert len(counter._counts) <= 500
    assert counter.share == pytest.approx(0.30, abs=0.06)  # some 400 texts are followed


def test_near_copies_differ_in_case_numbers_and_marks() -> None:
    assert bare("The 12th village, in Ohio!") == bare("the 3th VILLAGE in ohio") == "the 0th village in ohio"
    repeats = Repeats()
    for year in range(20):
        repeats.add_document([[f"In {1900 + year} the village had a population of {year * 37 + 100} people in all."]])
    assert repeats.sentences.share == 0.0
    assert repeats.near.share == pytest.approx(0.95, abs=0.01)


def test_boilerplate_is_found_among_more_lines_than_are_kept() -> None:
    lines = LineCounter(max_lines=300)
    for number in range(2000):
        lines.add_document([f"line number {number}", f"other line {number}"] + ["Click here now"] * (number % 4 == 0))
    (line, count), *others = lines.common(100)
    assert line == "Click here now"
    assert count > 400  # of 500: rare lines are forgotten with what they counted
    assert others == []


def test_a_line_counts_once_a_document() -> None:
    lines = LineCounter()
    lines.add_document(["all rights reserved here"] * 5 + ["too short"])
    assert lines.common(1) == [("all rights reserved here", 1)]
