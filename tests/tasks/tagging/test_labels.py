"""What label names say: which sequences are legal, where entities are, and tags from one scheme to another."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.tasks.tagging.labels import Tag, TagScheme, WordSpan, bio_tags, find_entities, parse_tag, tag_labels

BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
IOB1 = (
    "B-LOC",
    "B-MISC",
    "B-ORG",
    "I-LOC",
    "I-MISC",
    "I-ORG",
    "I-PER",
    "O",
)  # a well-known checkpoint's, without B-PER
BIOES = ("O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC")
BILOU = ("O", "B-PER", "I-PER", "L-PER", "U-PER")
IO = ("O", "I-PER", "I-LOC")
IOE = ("O", "I-PER", "E-PER")


def legal(labels: tuple[str, ...], *sequence: str) -> bool:
    return TagScheme(labels).is_legal(np.array([labels.index(label) for label in sequence], dtype=np.int64))


def test_labels_taken_apart() -> None:
    assert [parse_tag(label) for label in ("O", "B-PER", "I_LOC", "L-X-Y", "U-a", "M-a", "NOUN", "B-")] == [
        Tag("O"), Tag("B", "PER"), Tag("I", "LOC"), Tag("E", "X-Y"), Tag("S", "a"), Tag("I", "a"), Tag("I", "NOUN"),
        Tag("I", "B-"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "sequence", "expected"),
    [
        (BIO, ("B-PER", "I-PER", "O", "B-LOC"), True),
        (BIO, ("B-PER", "B-PER", "I-PER"), True),
        (BIO, ("I-PER",), False),
        (BIO, ("O", "I-PER"), False),
        (BIO, ("B-PER", "I-LOC"), False),
        (IOB1, ("I-PER", "I-PER", "O", "I-LOC"), True),
        (IOB1, ("I-LOC", "B-LOC", "I-LOC"), True),
        (IO, ("I-PER", "I-LOC", "O"), True),
        (IOE, ("I-PER", "E-PER", "E-PER"), True),
        (IOE, ("I-PER", "O"), False),
        (IOE, ("I-PER",), False),
        (BIOES, ("B-PER", "I-PER", "E-PER", "S-LOC"), True),
        (BIOES, ("S-PER", "E-PER"), False),
        (BIOES, ("B-PER",), False),
        (BIOES, ("B-PER", "O"), False),
        (BIOES, ("B-PER", "E-LOC"), False),
        (BIOES, ("B-PER", "S-PER"), False),
        (BIOES, ("I-PER", "E-PER"), False),
        (BILOU, ("B-PER", "L-PER", "U-PER"), True),
        (BILOU, ("B-PER", "U-PER"), False),
        (("NOUN", "VERB", "O"), ("VERB", "NOUN", "NOUN", "O"), True),
    ],
)
def test_which_sequences_are_legal(labels: tuple[str, ...], sequence: tuple[str, ...], expected: bool) -> None:
    assert legal(labels, *sequence) is expected


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
        ("B-PER B-PER I-PER", [("PER", 0, 0), ("PER", 1, 2)]),
        ("I-PER I-PER I-LOC", [("PER", 0, 1), ("LOC", 2, 2)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 0), ("LOC", 1, 2)]),
        ("S-PER S-PER B-LOC E-LOC E-LOC", [("PER", 0, 0), ("PER", 1, 1), ("LOC", 2, 3), ("LOC", 4, 4)]),
        ("U-PER I-PER", [("PER", 0, 0), ("PER", 1, 1)]),
    ],
)
def test_entities_by_hand(tags: str, spans: list[tuple[str, int, int]]) -> None:
    assert find_entities([parse_tag(tag) for tag in tags.split()]) == [WordSpan(*span) for span in spans]


KINDS = st.sampled_from(["PER", "LOC"])
SENTENCES = st.lists(st.tuples(st.one_of(st.none(), KINDS), st.integers(1, 3)), max_size=8)


def spans_of(parts: list[tuple[str | None, int]]) -> tuple[list[WordSpan], int]:
    spans, word = [], 0
    for kind, size in parts:
        if kind is not None:
            spans.append(WordSpan(kind, word, word + size - 1))
        word += size
    return spans, word


@given(SENTENCES, st.sampled_from([BIO, BIOES]))
def test_any_entities_survive_any_scheme(parts: list[tuple[str | None, int]], labels: tuple[str, ...]) -> None:
    spans, num_words = spans_of(parts)
    scheme = TagScheme(labels)
    targets = scheme.targets(bio_tags(spans, num_words))
    assert scheme.is_legal(np.array(targets, dtype=np.int64))
    tags, found = scheme.spell(targets)
    assert found == spans
    assert tags == bio_tags(spans, num_words)


@given(SENTENCES)
def test_iob1_marks_the_beginning_only_where_it_must(parts: list[tuple[str | None, int]]) -> None:
    labels = ("O", "I-PER", "B-LOC", "I-LOC")
    spans, num_words = spans_of(parts)
    targets = [labels[index] for index in TagScheme(labels).targets(bio_tags(spans, num_words))]
    for before, span in zip([None, *spans], spans, strict=False):
        must = before is not None and before.last + 1 == span.first and before.kind == span.kind == "LOC"
        assert targets[span.first] == f"{'B' if must else 'I'}-{span.kind}"


@pytest.mark.parametrize("labels", [BIO, BIOES, BILOU, IOE, IO])
def test_every_legal_sequence_is_what_its_entities_are_spelled_as(labels: tuple[str, ...]) -> None:
    scheme = TagScheme(labels)
    for ids in product(range(len(labels)), repeat=3):
        if scheme.is_legal(np.array(ids)):
            tags, spans = scheme.spell(ids)
            assert spans == find_entities([parse_tag(tag) for tag in tags])
            assert scheme.targets(tags) == list(ids)


def test_labels_of_examples() -> None:
    assert tag_labels([["O", "B-PER"], ["I-LOC", "O"]]) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert tag_labels([["VERB", "NOUN"]]) == ("NOUN", "VERB")
    assert TagScheme(("NOUN", "VERB")).spell([1, 0])[0] == ["VERB", "NOUN"]
    assert TagScheme(("NOUN", "VERB")).targets(["VERB", "NOUN"]) == [1, 0]


def test_a_tag_that_the_model_does_not_know() -> None:
    with pytest.raises(BertkitError, match=r"the tag B-ORG is none of the model's labels \(O, B-PER"):
        TagScheme(BIO).targets(["O", "B-ORG"])
    with pytest.raises(BertkitError, match="the tag ADJ is none"):
        TagScheme(("NOUN", "VERB")).targets(["ADJ"])
