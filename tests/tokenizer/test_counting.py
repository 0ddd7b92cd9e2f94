"""Counting words quickly gives what the tokenizer's own parts give slowly, on one core or several."""

from collections import Counter

import pytest
import tokenizers as tk
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.tokenizer import counting
from bertkit.tokenizer.counting import count_words
from tests.tokenizer.strings import FIXED, PROSE, generated_strings, real_lines


def slowly(lines: list[str], lowercase: bool) -> Counter[str]:
    normalizer = tk.normalizers.BertNormalizer(lowercase=lowercase)
    splitter = tk.pre_tokenizers.BertPreTokenizer()
    return Counter(word for line in lines for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(line)))


@pytest.mark.parametrize("lowercase", [True, False])
def test_words_are_those_of_the_tokenizer(lowercase: bool) -> None:
    lines = [*PROSE, *FIXED, *generated_strings(1500, seed=3), *real_lines(300)]
    assert count_words(lines, lowercase=lowercase) == slowly(lines, lowercase)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30)), st.booleans())
def test_any_text(lines: list[str], lowercase: bool) -> None:
    assert count_words(lines, lowercase=lowercase) == slowly(lines, lowercase)


def test_batches_and_workers_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = generated_strings(400, seed=4)
    whole = count_words(lines, lowercase=True)
    monkeypatch.setattr(counting, "BATCH_CHARACTERS", 3000)
    monkeypatch.setattr(counting, "MAX_PARTS", 10)
    done: list[int] = []
    assert count_words(iter(lines), lowercase=True, progress=done.append) == whole
    assert (sum(done), len(done) > 3) == (len(lines), True)
    assert count_words(lines, lowercase=True, num_workers=2) == whole


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(BertkitError, match="surrogate"):
        count_words(["fine", "half \ud800"], lowercase=True)
    with pytest.raises(BertkitError, match="not a string"):
        count_words([1], lowercase=True)  # type: ignore[list-item]
