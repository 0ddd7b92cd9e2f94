"""A table of features as two: whole texts, every class, vectors beside their labels."""

import numpy as np
import pytest

from bertkit.errors import BertkitError
from bertkit.tasks import feature_splits, features
from bertkit.tasks.feature_splits import split_table
from bertkit.tasks.features import FeatureRecipe, FeatureTable, Per


def table(labels: list[str | None], ids: list[int], per: Per) -> FeatureTable:
    """Each vector says which row it is."""
    vectors = np.repeat(np.arange(len(labels), dtype=np.float32)[:, None], 2, axis=1)
    texts = [f"text {row}" for row in range(len(labels))]
    return FeatureTable(FeatureRecipe("there", "abc", "last", per, 2), vectors, labels, texts, np.asarray(ids))


def check_rows(whole: FeatureTable, parts: list[FeatureTable]) -> None:
    """Every row is in one part, with its own label, text and number."""
    rows = [int(vector[0]) for part in parts for vector in part.vectors]
    assert sorted(rows) == list(range(len(whole)))
    assert [text for part in parts for text in part.texts] == [whole.texts[row] for row in rows]
    assert [label for part in parts for label in part.labels] == [whole.labels[row] for row in rows]
    assert [number for part in parts for number in part.text_ids] == [whole.text_ids[row] for row in rows]


def test_a_tenth_of_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_splits, "COPIED_ROWS", 7)  # many copies add up to the whole
    whole = table(["a", "a", "a", "b"] * 20, list(range(80)), "text")
    split = split_table(whole, seed=1)
    check_rows(whole, [split.train, split.dev])
    assert sorted(split.dev.known_labels()) == ["a"] * 6 + ["b"] * 2
    assert "8 of 80 examples (10%) held out by class, seed 1" in split.said
    assert split_table(whole, seed=1).dev.texts == split.dev.texts
    assert split_table(whole, seed=2).dev.texts != split.dev.texts


def test_words_of_a_text_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "IN_MEMORY_BYTES", 0)  # as a table larger than memory
    whole = table(["O", "B-X", "I-X"] * 20, [row // 3 for row in range(60)], "word")
    split = split_table(whole)
    check_rows(whole, [split.train, split.dev])
    assert [end - first for first, end in split.dev.groups()] == [3, 3]
    assert isinstance(split.train.vectors, np.memmap)


def test_rows_without_a_label_are_named() -> None:
    with pytest.raises(BertkitError, match=r"row 2 \('text 1'\) has no label"):
        split_table(table(["a", None, "b"], [0, 1, 2], "text"))
