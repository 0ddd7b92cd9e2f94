"""Numbers in messages are words that people would say."""

import pytest

from bertkit.text.counted import agree, counted, in_millions


def test_one_is_singular() -> None:
    assert counted(1, "file") == "1 file"
    assert counted(1200, "file") == "1,200 files"
    assert counted(0, "text was", "texts were") == "0 texts were"
    assert (agree(1, "is", "are"), agree(2, "is", "are")) == ("is", "are")


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0"), (16_146, "16,146"), (1e6, "1.0 million"), (3.29e9, "3,290.0 million")]
)
def test_small_numbers_are_told_in_full(count: float, words: str) -> None:
    assert in_millions(count) == words
