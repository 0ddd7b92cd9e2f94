"""Files of pairs: which columns are what, which loss they can teach, and which pairs count as meaning the same."""

import json
from pathlib import Path

import pytest

from bertkit.errors import BertkitError
from bertkit.tasks.sentence_pairs import PairColumns, PairExample, choose_loss, positives, read_pairs, score_range

A, B, C = "A plane is taking off.", "An air plane is taking off.", "A man is playing a flute."


def write(path: Path, *rows: tuple[str, ...]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def test_scored_pairs(tmp_path: Path) -> None:
    path = write(tmp_path / "sts.tsv", ("sentence1", "sentence2", "score"), (A, B, "5.000"), (A, C, "0.4"))
    table = read_pairs(path)
    assert [(one.text, one.pair, one.score, one.line) for one in table.examples] == [(A, B, 5.0, 2), (A, C, 0.4, 3)]
    assert "label = column 'score'" in table.lines()[0]
    assert choose_loss("auto", table.examples) == "cosent"
    assert score_range(table.examples) == (0.4, 5.0)
    assert [one.pair for one in positives(table.examples)] == [B]


def test_pairs_alone(tmp_path: Path) -> None:
    table = read_pairs(write(tmp_path / "pairs.tsv", ("sentence1", "sentence2"), (A, B), (C, A)))
    assert [one.score for one in table.examples] == [None, None]
    assert choose_loss("auto", table.examples) == "contrastive"
    assert len(positives(table.examples)) == 2
    with pytest.raises(BertkitError, match="needs a score for every pair"):
        choose_loss("mse", table.examples)
    with pytest.raises(BertkitError, match="unknown loss 'triplet'"):
        choose_loss("triplet", table.examples)


def test_three_columns_have_a_hard_negative(tmp_path: Path) -> None:
    table = read_pairs(write(tmp_path / "three.tsv", ("anchor", "positive", "negative"), (A, B, C), (C, A, " ")))
    assert [(one.text, one.pair, one.negative) for one in table.examples] == [(A, B, C), (C, A, None)]
    assert "hard negative = column 'negative'" in table.lines()[0]


def test_columns_by_name_and_by_number(tmp_path: Path) -> None:
    path = write(tmp_path / "bare.tsv", (A, B, C), (C, A, B))
    (first, _) = read_pairs(path, PairColumns(negative="1")).examples
    assert (first.text, first.pair, first.negative) == (B, C, A)
    (first, _) = read_pairs(path, PairColumns("3", "1", negative="2")).examples
    assert (first.text, first.pair, first.negative) == (C, A, B)
    with pytest.raises(BertkitError, match="no column 'x'"):
        read_pairs(path, PairColumns(negative="x"))


def test_files_that_hold_no_pairs(tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="pairs need two"):
        read_pairs(write(tmp_path / "one.tsv", ("text", "label"), (A, "1"), (B, "0")))
    bad = write(tmp_path / "bad.tsv", ("sentence1", "sentence2", "score"), (A, B, "high"))
    with pytest.raises(BertkitError, match=r"line 2: the label .*high.* is not a number"):
        read_pairs(bad)
    with pytest.raises(BertkitError, match="do not differ"):
        score_range([PairExample(A, B, 1.0), PairExample(A, C, 1.0)])


def test_a_missing_score_does_not_make_all_pairs_positive(tmp_path: Path) -> None:
    rows = (("sentence1", "sentence2", "score"), (A, B, "5"), (A, C, ""), (C, A, "0"))
    path = write(tmp_path / "sts.tsv", *rows)
    with pytest.raises(BertkitError, match="line 3: the score is missing"):
        read_pairs(path)
    table = read_pairs(path, skip_bad=True)
    assert [one.line for one in positives(table.examples)] == [2]
    assert table.problems.count == 1
    mixed = [PairExample(A, B, 5.0), PairExample(A, C, 0.0), PairExample(C, A)]
    assert positives(mixed) == [mixed[0], mixed[2]]


def test_texts_beside_a_negative_are_found_by_their_names(tmp_path: Path) -> None:
    for first, second in (("sentence1", "sentence2"), ("query", "passage")):
        path = write(tmp_path / "a.tsv", ("id", first, second, "negative"), ("one", A, B, C), ("two", C, A, B))
        assert [(one.text, one.pair, one.negative) for one in read_pairs(path).examples] == [(A, B, C), (C, A, B)]
    path = write(tmp_path / "b.tsv", ("score", "premise", "other", "negative"), ("1.5", A, B, C), ("0.5", C, A, B))
    assert (read_pairs(path).examples[0].pair, read_pairs(path).examples[0].score) == (B, 1.5)


def test_half_a_pair_and_a_negative_that_is_no_text_are_bad(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", ("sentence1", "sentence2"), (A, B), (C, " "))
    with pytest.raises(BertkitError, match="line 3: the second text is empty"):
        read_pairs(path)
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"anchor": A, "positive": B, "negative": [C, A]}) + "\n")
    with pytest.raises(BertkitError, match="line 1: column 'negative' holds list, not text"):
        read_pairs(path)
