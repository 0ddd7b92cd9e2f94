"""The report on a vocabulary: figures that can be checked by hand."""

import json

import pytest

from bertkit.tokenizer import Tokenizer, measure_vocabulary, train_vocabulary
from tests.tokenizer.strings import PROSE

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_figures_by_hand() -> None:
    tokenizer = Tokenizer.from_vocab([*SPECIAL, "play", "##ing", "##s", "dog", "."], lowercase=True)
    report = measure_vocabulary(tokenizer, ["Playing dogs, dog.", "play playings zebra."])
    # playing 2, dogs 2, dog 1, play 1, playings 3, zebra unknown 1; marks are no words
    assert (report.num_words, report.num_pieces, report.num_whole, report.num_unknown) == (6, 10, 2, 1)
    assert report.fertility == pytest.approx(10 / 6)
    assert report.unknown_rate == pytest.approx(1 / 6)
    assert report.whole_rate == pytest.approx(2 / 6)
    assert report.most_pieces == [("playings", 3), ("Playing", 2), ("dogs", 2)]
    assert report.unknown_words == [("zebra", 1)]
    assert report.longest_tokens == ["play", "dog"]
    assert report.vocab_size == 10


def test_for_programs_and_for_people() -> None:
    report = measure_vocabulary(train_vocabulary(PROSE * 3, size=300, lowercase=True), PROSE)
    stored = json.loads(json.dumps(report.to_json()))
    assert stored["fertility"] == report.fertility > 1
    assert any(line.startswith("pieces a word (fertility): 1.") for line in report.lines())


def test_no_text_is_no_division_by_zero() -> None:
    report = measure_vocabulary(train_vocabulary(PROSE, size=300, lowercase=True), [])
    assert (report.num_words, report.fertility, report.unknown_rate) == (0, 0, 0)
