"""Entity scores: a published example's counts, edge cases by hand, and conlleval's own walk over random tags."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.tasks.metrics import EntityMetrics


def counts(gold: str, predicted: str) -> tuple[int, int, int]:
    """Entities right, predicted, true."""
    metrics = EntityMetrics()
    metrics.add(gold.split(), predicted.split())
    return metrics.hits.total(), metrics.predicted.total(), metrics.support.total()


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ("B-A I-A O B-B", "B-A I-A O B-B", (2, 2, 2)),
        ("B-A I-A O B-B", "B-A O O B-B", (1, 2, 2)),  # half an entity is none
        ("B-A I-A", "B-B I-B", (0, 1, 1)),  # the right words, the wrong kind
        ("I-A I-A O", "B-A I-A O", (1, 1, 1)),  # IOB1 and BIO mean the same here
        ("I-A B-A", "B-A I-A", (0, 1, 2)),  # B splits
        ("B-A I-A", "O I-A", (0, 1, 1)),  # I after O begins an entity
        ("B-A B-B", "B-A I-B", (2, 2, 2)),  # I of another kind begins one
        ("O O", "B-A O", (0, 1, 0)),
        ("B-A O", "O O", (0, 0, 1)),
        ("S-A B-B E-B", "B-A B-B I-B", (2, 2, 2)),
    ],
)
def test_edges(gold: str, predicted: str, expected: tuple[int, int, int]) -> None:
    assert counts(gold, predicted) == expected


def test_scores_by_hand() -> None:
    metrics = EntityMetrics()
    metrics.add(["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "I-PER", "O", "O"])
    metrics.add(["B-ORG", "O"], ["B-ORG", "B-LOC"])
    metrics.add([], [])
    assert metrics.scores() == {
        "f1": pytest.approx(2 * 2 / (3 + 3)),
        "precision": pytest.approx(2 / 3),
        "recall": pytest.approx(2 / 3),
        "word_accuracy": pytest.approx(4 / 6),
    }
    kinds = {score.label: (score.precision, score.recall, score.support) for score in metrics.per_class()}
    assert kinds == {"LOC": (0.0, 0.0, 1), "ORG": (1.0, 1.0, 1), "PER": (1.0, 1.0, 1)}
    assert EntityMetrics().scores() == {"f1": 0.0, "precision": 0.0, "recall": 0.0, "word_accuracy": 0.0}
    with pytest.raises(BertkitError, match="one a word"):
        metrics.add(["O"], [])


def walk(gold: list[str], predicted: list[str]) -> tuple[int, int, int]:
    """conlleval's way: word by word, with flags for chunks that begin, end, and have been right so far."""

    def parts(tag: str) -> tuple[str, str]:
        return (tag[0], tag[2:]) if tag != "O" else ("O", "")

    def ends(before: tuple[str, str], tag: tuple[str, str]) -> bool:
        return before[0] in "BI" and (tag[0] in "BO" or before[1] != tag[1])

    def begins(before: tuple[str, str], tag: tuple[str, str]) -> bool:
        return tag[0] == "B" or (tag[0] == "I" and (before[0] == "O" or before[1] != tag[1]))

    right = found = true = 0
    so_far = False
    last_gold = last_predicted = ("O", "")
    for g, p in zip([*map(parts, gold), ("O", "")], [*map(parts, predicted), ("O", "")], strict=True):
        if so_far:
            both = ends(last_gold, g), ends(last_predicted, p)
            if all(both):
                right, so_far = right + 1, False
            elif any(both) or g[1] != p[1]:
                so_far = False
        if begins(last_gold, g) and begins(last_predicted, p) and g[1] == p[1]:
            so_far = True
        true += begins(last_gold, g)
        found += begins(last_predicted, p)
        last_gold, last_predicted = g, p
    return right, found, true


tags = st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B"])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(tags, tags), max_size=12))
def test_as_conlleval_walks(pairs: list[tuple[str, str]]) -> None:
    gold, predicted = [g for g, _ in pairs], [p for _, p in pairs]
    assert counts(" ".join(gold), " ".join(predicted)) == walk(gold, predicted)
