"""Columns of tagged words: sentences, tags of every scheme as BIO, and the line of what is broken."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.tasks.reading.conll import TagOptions, TagSource, read_conll, to_bio
from bertkit.tasks.tagging.labels import WordSpan, bio_tags, find_entities, parse_tag
from tests.tasks.reading.real import unpack
from tests.text.packing import PACKERS

CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
Anna NNP I-NP B-PER
-DOCSTART- -X- O O
# NN I-NP O
end NN I-NP O"""


def write(folder: Path, content: str, name: str = "a.txt") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_conll_2003(tmp_path: Path) -> None:
    table = read_conll(write(tmp_path, CONLL))
    assert table.guess == "word = column 1, tag = column 4, read as BIO"
    assert [(e.words, e.tags, e.line) for e in table.examples] == [
        (("EU", "rejects"), ("B-ORG", "O"), 3),
        (("Peter", "Blackburn", "Anna"), ("B-PER", "I-PER", "B-PER"), 6),
        (("#", "end"), ("O", "O"), 10),
    ]
    chunks = read_conll(write(tmp_path, CONLL), TagOptions(tag_column=3)).examples[1]
    assert chunks.tags == ("B-NP", "I-NP", "I-NP")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-A I-A O I-A", "B-A I-A O B-A"),  # IOB1
        ("I-A B-A I-A I-B", "B-A B-A I-A B-B"),  # IOB1: B only between entities of one kind
        ("B-A I-A O B-B", "B-A I-A O B-B"),  # BIO
        ("S-A B-B I-B E-B S-A", "B-A B-B I-B I-B B-A"),  # BIOES
        ("U-A B-B L-B O", "B-A B-B I-B O"),  # BILOU
        ("E-A E-A I-A E-A", "B-A B-A B-A I-A"),  # IOE
        ("B-per-x I-per-x O", "B-per-x I-per-x O"),
        ("NN VB O", "NN VB O"),  # no prefixes: parts of speech
    ],
)
def test_schemes(tags: str, expected: str) -> None:
    assert " ".join(to_bio(tags.split())) == expected


def test_wikiann_and_tabs(tmp_path: Path) -> None:
    table = read_conll(write(tmp_path, "en:R.H.\tB-ORG\nen:New York\tI-ORG\n\nen:en:\tO\n"))
    assert [e.words for e in table.examples] == [("R.H.", "New York"), ("en:",)]
    assert "without its 'en:'" in table.guess
    mixed = read_conll(write(tmp_path, "en:a\tO\nb\tO\n"))
    assert mixed.examples[0].words == ("en:a", "b")


@pytest.mark.parametrize("suffix", PACKERS)
def test_packed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"eng.train{suffix}"
    path.write_bytes(PACKERS[suffix](CONLL.encode()))
    assert len(read_conll(path).examples) == 3


def test_words_alone_and_comments(tmp_path: Path) -> None:
    assert [e.tags for e in read_conll(write(tmp_path, "My\ndog\n\nis\n")).examples] == [None, None]
    found = read_conll(write(tmp_path, "# id 12345 domain=en\nMy O\ndog O\n\n# x\nis O\n" + "so O\n" * 20)).examples
    assert [e.words[:2] for e in found] == [("My", "dog"), ("is", "so")]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("a X O\n\nb O\n\nc X O\n", 3, "2 columns where most lines have 3"),
        ("a X O\n\nb\n\nc X O\n", 3, "1 column where most lines have 3"),
        ("a\tO\n\n\tO\n\nc\tO\n", 3, "the word is empty"),
        ("a\tO\n\nb\t\n\nc\tO\n", 3, "the tag of 'b' is empty"),
        ("a B-LOC\n\nb PER\n\n" + "c O\n" * 20, 3, "the tag 'PER' is neither O nor as B-PER"),
    ],
)
def test_bad_lines(tmp_path: Path, content: str, line: int, reason: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(BertkitError, match=rf"line {line}: {reason}.*; .*skip_bad"):
        read_conll(path)
    table = read_conll(path, TagOptions(skip_bad=True))
    assert [e.words[0] for e in table.examples] == ["a", "c"]
    assert table.problems.count == 1


def test_bad_bytes_and_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"good O\n\nna\xefve O\n")
    with pytest.raises(BertkitError, match="line 3: not UTF-8"):
        read_conll(path)
    with pytest.raises(BertkitError, match="no words"):
        TagSource(write(tmp_path, "\n\n"))
    with pytest.raises(BertkitError, match="no column 7"):
        TagSource(write(tmp_path, "a O\n"), TagOptions(tag_column=7))
    with pytest.raises(BertkitError, match="no file"):
        TagSource(tmp_path / "nothing")
    with pytest.raises(BertkitError, match="counted from 1"):
        TagOptions(tag_column=0)


def test_real_files(tmp_path: Path) -> None:
    conll, wikiann = unpack("conll2003", tmp_path), unpack("wikiann-en", tmp_path)
    sizes = {conll / "eng.testa": (3250, 51362, 5942), wikiann / "dev": (10000, 80536, 14146)}
    for path, expected in sizes.items():
        found = read_conll(path).examples
        entities = sum(tag.startswith("B-") for e in found for tag in e.tags or ())
        assert (len(found), sum(len(e.words) for e in found), entities) == expected


kinds = st.sampled_from(["PER", "LOC", "a-b"])


@st.composite
def spans(draw: st.DrawFn) -> tuple[list[WordSpan], int]:
    """Entities in their order, some touching, and how many words there are."""
    found, word = [], 0
    for _ in range(draw(st.integers(0, 5))):
        first = word + draw(st.integers(0, 2))
        last = first + draw(st.integers(0, 3))
        found.append(WordSpan(draw(kinds), first, last))
        word = last + 1
    return found, word + draw(st.integers(0, 2))


@given(spans())
def test_spans_come_back_from_bio(given_spans: tuple[list[WordSpan], int]) -> None:
    found, num_words = given_spans
    tags = bio_tags(found, num_words)
    assert find_entities([parse_tag(tag) for tag in tags]) == found
    assert to_bio(tags) == tuple(tags)


@given(st.lists(st.sampled_from([f"{p}-{k}" for p in "BIESLUM" for k in ("A", "B")] + ["O"]), max_size=12))
def test_any_tags_become_legal_bio(tags: list[str]) -> None:
    found = to_bio(tags)
    assert [tag == "O" for tag in found] == [tag == "O" for tag in tags]
    assert [tag[2:] for tag in found] == [tag[2:] for tag in tags]
    assert to_bio(found) == found
    for before, tag in zip(("O", *found), found, strict=False):
        assert not tag.startswith("I-") or before[2:] == tag[2:]


def test_kinds_without_prefixes_are_taken_however_rare_they_are(tmp_path: Path) -> None:
    for many in (1, 50):
        found = read_conll(write(tmp_path, "Ann PER\n" + "x O\n" * many)).examples
        assert found[0].tags == ("PER", *["O"] * many)
        assert TagSource(tmp_path / "a.txt").guess == "word = column 1, tag = column 2, taken as it is"


def test_the_line_that_differs_from_most_is_the_bad_one(tmp_path: Path) -> None:
    path = write(tmp_path, "a O\n\nb X O\nc X O\n")
    with pytest.raises(BertkitError, match="line 1: 2 columns where most lines have 3"):
        read_conll(path)
    assert [e.words for e in read_conll(path, TagOptions(skip_bad=True)).examples] == [("b", "c")]


def test_columns_are_numbers() -> None:
    with pytest.raises(BertkitError, match="so 'text' is none"):
        TagOptions(word_column="text")  # type: ignore[arg-type]
