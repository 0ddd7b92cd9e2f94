"""BLiMP: the share of pairs whose good sentence is the likelier one; ties are wrong, and sets weigh alike."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.errors import BertkitError
from bertkit.studies.blimp import PairSet, SetScore, read_blimp, score_set, summarise_blimp


class Lengths:
    """Longer is likelier."""

    def score(self, texts: list[str]) -> Any:
        return np.array([float(len(text)) for text in texts])


def test_a_tie_is_wrong() -> None:
    pairs = PairSet("toy", "syntax", "islands", [("long one", "short"), ("aa", "bb"), ("a", "longer"), ("abc", "ab")])
    assert score_set(Lengths(), pairs) == SetScore("toy", "syntax", "islands", 4, 0.5)  # type: ignore[arg-type]


def test_sets_weigh_alike_in_the_mean() -> None:
    scores = [
        SetScore("a", "f", "one", 10, 1.0),
        SetScore("b", "f", "two", 1000, 0.5),
        SetScore("c", "f", "two", 1, 0.0),
    ]
    found = summarise_blimp(scores)
    assert found["accuracy"] == 0.5
    assert found["terms"] == {"one": 1.0, "two": 0.25}
    assert (found["num_sets"], found["num_pairs"]) == (3, 1011)


def test_files_are_read_in_order_and_to_the_limit(data: Path) -> None:
    sets = list(read_blimp(data / "tasks" / "blimp"))
    assert [one.name for one in sets] == ["first_set", "second_set", "third_set"]
    assert [len(one.pairs) for one in sets] == [6, 6, 6]
    assert [len(one.pairs) for one in read_blimp(data / "tasks" / "blimp", limit=4)] == [4, 4, 4]
    row = json.loads((data / "tasks" / "blimp" / "first_set.jsonl").read_text().splitlines()[0])
    assert sets[0].pairs[0] == (row["sentence_good"], row["sentence_bad"])


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match=r"no \.jsonl"):
        list(read_blimp(tmp_path))
    (tmp_path / "bad.jsonl").write_text('{"sentence": "one"}\n')
    with pytest.raises(BertkitError, match=r"bad\.jsonl is no file of sentence pairs"):
        list(read_blimp(tmp_path))
