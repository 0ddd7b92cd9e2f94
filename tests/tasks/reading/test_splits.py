"""Splits, duplicates and class weights."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.tasks.reading.examples import Label, QuestionExample, TagExample, TextExample
from bertkit.tasks.reading.splits import class_weights, count_classes, find_duplicates, split_examples


def texts(*labels: Label) -> list[TextExample]:
    return [TextExample(f"text {number}", None, label, number) for number, label in enumerate(labels)]


def test_every_class_gives_its_share() -> None:
    given_texts = texts(*"a" * 200, *"b" * 90, *"c" * 10)
    split = split_examples(given_texts, share=0.1, seed=3)
    assert count_classes(e.label for e in split.dev) == {"a": 20, "b": 9, "c": 1}
    assert split.said == "one file only: 30 of 300 examples (10%) held out by class, seed 3"
    assert sorted([*split.train, *split.dev], key=lambda e: e.line or 0) == given_texts
    assert split == split_examples(given_texts, share=0.1, seed=3)
    assert split.dev != split_examples(given_texts, share=0.1, seed=4).dev


@given(st.lists(st.sampled_from("abcdef"), min_size=2, max_size=60), st.floats(0.05, 0.5), st.integers(0, 9))
def test_nothing_is_lost_and_no_class_leaves_training(labels: list[str], share: float, seed: int) -> None:
    assume(len(set(labels)) < len(labels))
    split = split_examples(texts(*labels), share=share, seed=seed)
    assert Counter(split.train) + Counter(split.dev) == Counter(texts(*labels))
    assert split.dev
    assert {e.label for e in split.train} == set(labels)
    assert len(split.dev) <= max(1, share * len(labels) + 1)


def test_a_column_of_identifiers_is_no_column_of_labels() -> None:
    with pytest.raises(BertkitError, match="check that the label column holds classes"):
        split_examples(texts(*(f"id{n}" for n in range(30))))
    assert split_examples(texts(1.0, 2.0, 3.0)).dev  # numbers are all different as a rule


def test_what_is_the_same_stays_together() -> None:
    same = [TextExample(f"Text  {n // 4}".upper() if n % 2 else f"text {n // 4}", None, "a", n) for n in range(80)]
    split = split_examples(same, share=0.2)
    assert len(split.dev) == 16
    assert find_duplicates({"train": split.train, "dev": split.dev}).counts == {}
    questions = [QuestionExample(str(n), f"q{n}?", f"context {n // 5}") for n in range(50)]
    parts = split_examples(questions, share=0.2)
    assert len(parts.dev) == 10
    assert not {e.context for e in parts.train} & {e.context for e in parts.dev}


def test_numbers_are_split_over_their_whole_range() -> None:
    split = split_examples(texts(*(n / 7 for n in range(100))), share=0.1)
    assert sorted(int(float(str(e.label)) * 7 / 10 + 1e-9) for e in split.dev) == list(range(10))
    assert "held out by number" in split.said


def test_several_classes_and_tags() -> None:
    split = split_examples(texts(*[("a", "rare"), ("a",), ("b", "a"), ()] * 20), share=0.25)
    assert count_classes(e.label for e in split.dev) == {"a": 15, "rare": 5, "b": 5}
    tags = [TagExample((f"w{n}",), ("O",), n) for n in range(10)]
    assert len(split_examples(tags, share=0.3).dev) == 3


def test_what_cannot_be_split() -> None:
    with pytest.raises(BertkitError, match="cannot be split"):
        split_examples([TextExample("a"), TextExample("A ")])
    with pytest.raises(BertkitError, match="between 0 and 1"):
        split_examples(texts("a", "b"), share=1.5)


def test_duplicates_across_splits() -> None:
    train = [TextExample("A  dog", None, "x", 2), TextExample("a cat", "b", "x", 3), TextExample("a dog", None, "y", 4)]
    dev = [TextExample("a DOG", None, "y", 7), TextExample("a cat", "c", "x", 8), TextExample("a dog", "", "x", 9)]
    found = find_duplicates({"train": train, "dev": dev, "test": [TextExample("A CAT", "C", "x", 1)]})
    assert found.counts == {("train", "dev"): 2, ("dev", "test"): 1}
    assert found.lines() == [
        "2 texts of dev stand in train too",
        "1 text of test stands in dev too",
        "  dev, line 7: as train, line 2",
        "  dev, line 9: as train, line 2",
        "  test, line 1: as dev, line 8",
    ]
    assert find_duplicates({"train": train}).lines() == []


def test_class_weights() -> None:
    counts = count_classes(["a", "b", "a", ("a", "c"), None, 2.5])
    assert counts == {"a": 3, "b": 1, "c": 1}
    assert class_weights({"a": 6, "b": 2}) == pytest.approx({"a": 8 / 12, "b": 2.0})  # n / (classes x count)
    with pytest.raises(BertkitError, match="every class"):
        class_weights({"a": 1, "b": 0})


def test_what_is_said_is_what_was_held_out() -> None:
    pairs = [TextExample(str(number), None, f"c{number % 50}") for number in range(100)]
    assert "50 of 100 examples (50%) held out" in split_examples(pairs, share=0.9).said  # a class keeps one
