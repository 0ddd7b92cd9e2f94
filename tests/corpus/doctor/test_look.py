"""A look at a corpus: sound text passes everywhere, and each constructed disease is found, in text and in a store."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.corpus.doctor import sample
from bertkit.corpus.doctor.findings import Needs, data_findings
from bertkit.corpus.doctor.look import Look, PieceCounts, look_at
from bertkit.corpus.doctor.sample import StorePart, StoreSource, TextSource, part_of_store, shard_documents
from bertkit.corpus.prepare.blocks import PrepareOptions
from bertkit.corpus.prepare.run import prepare
from bertkit.corpus.store import Shard, TokenStore
from bertkit.errors import BertkitError
from bertkit.text.findings import Finding
from bertkit.text.samples import sample_documents
from bertkit.tokenizer import Tokenizer, train_vocabulary
from bertkit.tokenizer.report import measure_vocabulary

Documents = list[list[str]]
GERMAN = [
    "Der Fischer ging am Morgen mit seinem Hund an das Ufer, und es war noch dunkel über dem Wasser.",
    "Sie hat das Brot auf den Tisch gelegt, aber niemand wollte davon essen, weil es zu hart war.",
    "Im Winter ist der Weg durch den Wald nicht leicht zu finden, und man muss sich auf die Sterne verlassen.",
    "Nach dem Regen sind die Kinder aus dem Haus gelaufen, um in den Pfützen vor der Schule zu spielen.",
]
RUSSIAN = [
    "Рыбак утром пошел с собакой на берег, и над водой еще было темно, но он уже знал, что делать.",
    "Она положила хлеб на стол, но никто не хотел его есть, потому что он был слишком жестким.",
    "Зимой дорогу через лес не так легко найти, и нужно смотреть на звезды, если они видны.",
    "После дождя дети выбежали из дома, чтобы играть в лужах, которые были перед школой.",
]

JAPANESE = [
    "漁師は朝早く犬を連れて岸辺に行きましたが、水の上はまだ暗かったです。",
    "彼女はテーブルの上にパンを置きましたが、硬すぎたので誰も食べたがりませんでした。",
    "雨の後、子供たちは学校の前の水たまりで遊ぶために家から走り出しました。",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_vocabulary((line for document in sample_documents() for line in document), size=2000, lowercase=True)


def write(folder: Path, documents: Iterable[list[str]]) -> Path:
    path = folder / "corpus.txt"
    path.write_text("\n\n".join("\n".join(document) for document in documents), encoding="utf-8")
    return path


def look(path: Path, tokenizer: Tokenizer, **options: str) -> Look:
    return look_at(TextSource([path], tokenizer, 10**9, PrepareOptions(**options)))  # type: ignore[arg-type]


def by_name(findings: Iterable[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def examine_text(tmp_path: Path, documents: Iterable[list[str]], tokenizer: Tokenizer) -> dict[str, Finding]:
    return by_name(data_findings(look(write(tmp_path, documents), tokenizer)))


def examine_store(tmp_path: Path, documents: Iterable[list[str]], tokenizer: Tokenizer) -> dict[str, Finding]:
    options = PrepareOptions(sentences="line", dedup=False)
    prepare([write(tmp_path, documents)], tokenizer, tmp_path / "store", options, workers=1)
    store = TokenStore.open(tmp_path / "store", tokenizer)
    return by_name(data_findings(look_at(StoreSource(store, tokenizer, 10**9))))


EXAMINE = pytest.mark.parametrize("examine", [examine_text, examine_store])


@EXAMINE
def test_sound_text_in_its_own_vocabulary_passes(tmp_path: Path, tokenizer: Tokenizer, examine) -> None:  # type: ignore[no-untyped-def]
    found = examine(tmp_path, sample_documents(), tokenizer)
    assert {name for name, finding in found.items() if finding.level != "ok"} == set()
    assert all(finding.advice == "" for finding in found.values())
    assert found["looked at"].values["share"] == 1.0
    assert found["languages"].values["languages"]["English"] > 0.95


@EXAMINE
def test_thirty_percent_of_copies(tmp_path: Path, tokenizer: Tokenizer, examine) -> None:  # type: ignore[no-untyped-def]
    documents = sample_documents()
    documents += documents[: round(len(documents) * 3 / 7)]
    found = examine(tmp_path, documents, tokenizer)["duplicates"]
    assert found.level == "problem"
    assert found.values["documents"] == pytest.approx(0.30, abs=0.03)
    assert found.values["sentences"] == pytest.approx(0.30, abs=0.05)
    assert "dedup" in found.advice


@EXAMINE
def test_languages_mixed(tmp_path: Path, tokenizer: Tokenizer, examine) -> None:  # type: ignore[no-untyped-def]
    documents = [[*GERMAN], [*RUSSIAN], *sample_documents()[:2]] * 4
    both = Tokenizer.from_vocab(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({w for d in documents for w in words(d)})],
        lowercase=True,
    )
    found = examine(tmp_path, documents, both)["languages"]
    assert found.level == "problem"
    assert {"English", "German", "Russian"} <= set(found.values["languages"])
    assert found.values["scripts"]["Cyrillic"] > 0.2
    assert "--accept languages" in found.advice


@EXAMINE
def test_japanese_is_one_language_in_three_scripts(tmp_path: Path, examine) -> None:  # type: ignore[no-untyped-def]
    own = train_vocabulary(JAPANESE, size=300, lowercase=True)
    found = examine(tmp_path, [JAPANESE, JAPANESE[::-1]], own)["languages"]
    assert found.values["languages"] == {"Japanese": 1.0}
    assert set(found.values["scripts"]) == {"Hiragana", "Cjk", "Katakana"}
    assert found.level == "ok"


def words(document: list[str]) -> list[str]:
    kept = "".join(letter if letter.isalpha() else f" {letter} " for letter in " ".join(document).lower())
    return (kept + " " + kept.replace("ё", "е").replace("й", "и").replace("ü", "u").replace("ä", "a")).split()


@EXAMINE
def test_markup(tmp_path: Path, examine) -> None:  # type: ignore[no-untyped-def]
    documents = [[f"<p>{line}<br />And&nbsp;so on.</p>" for line in document] for document in sample_documents()[:20]]
    own = train_vocabulary((line for document in documents for line in document), size=1000, lowercase=True)
    found = examine(tmp_path, documents, own)["markup"]
    assert (found.level, found.values["share"]) == ("problem", 1.0)
    assert "before `bertkit prepare`" in found.advice


@EXAMINE
def test_signs_of_sums_and_firms_are_no_markup(tmp_path: Path, examine) -> None:  # type: ignore[no-untyped-def]
    lines = ["If x < y and y > z, then we stop; salt & pepper; R&D; a <- b."]
    own = train_vocabulary(lines, size=200, lowercase=True)
    assert examine(tmp_path, [lines * 2] * 3, own)["markup"].values["share"] == 0.0


def test_where_nothing_can_be_read_the_reason_is_told(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "latin.txt").write_bytes("Le café.\n".encode("latin-1") * 3)
    with pytest.raises(BertkitError, match=r"no text to look at: 3 lines .* line 1: not UTF-8; name files"):
        look(tmp_path / "latin.txt", tokenizer)


@EXAMINE
def test_a_vocabulary_of_other_text(tmp_path: Path, tokenizer: Tokenizer, examine) -> None:  # type: ignore[no-untyped-def]
    found = examine(tmp_path, [RUSSIAN] * 3, tokenizer)["unknown words"]
    assert found.level == "problem"
    assert found.values["rate"] > 0.9
    assert "vocab train" in found.advice


@EXAMINE
def test_documents_of_one_sentence(tmp_path: Path, tokenizer: Tokenizer, examine) -> None:  # type: ignore[no-untyped-def]
    found = examine(tmp_path, [[line] for document in sample_documents() for line in document], tokenizer)["documents"]
    assert found.level == "problem"
    assert found.values["single_share"] == 1.0
    assert "next_sentence = false" in found.advice


def test_without_next_sentences_single_ones_are_fine(tmp_path: Path, tokenizer: Tokenizer) -> None:
    seen = look(write(tmp_path, [[line] for document in sample_documents() for line in document]), tokenizer)
    assert by_name(data_findings(seen, Needs(next_sentence=False)))["documents"].level == "ok"


def test_one_document_alone_has_no_strangers(tmp_path: Path, tokenizer: Tokenizer) -> None:
    found = examine_text(tmp_path, [[line for document in sample_documents() for line in document]], tokenizer)
    assert found["documents"].level == "problem"
    assert "blank lines" in found["documents"].advice


def test_text_without_sentence_ends(tmp_path: Path, tokenizer: Tokenizer) -> None:
    endless = [[" ".join(line.replace(".", "") for line in document) * 20] for document in sample_documents()[:20]]
    found = examine_text(tmp_path, endless, tokenizer)["sentences"]
    assert found.level == "problem"
    assert found.values["long_share"] > 0.9


def test_boilerplate_is_shown(tmp_path: Path, tokenizer: Tokenizer) -> None:
    documents = [[*document, "Subscribe to our newsletter"] for document in sample_documents()]
    found = examine_text(tmp_path, documents, tokenizer)["boilerplate"]
    assert found.level == "problem"
    assert "Subscribe to our newsletter" in found.figure


def test_casing_that_does_not_fit(tmp_path: Path) -> None:
    lines = [line for document in sample_documents() for line in document]
    cased = train_vocabulary(lines, size=2000, lowercase=False)
    assert examine_text(tmp_path, sample_documents(), cased)["casing"].level == "ok"
    small = [[line.lower() for line in document] for document in sample_documents()]
    assert examine_text(tmp_path, small, cased)["casing"].level == "warning"
    uncased_words = sorted({word for line in lines for word in line.lower().replace(".", " . ").split()})
    with pytest.warns(UserWarning, match="no piece with a capital"):
        wrong = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *uncased_words], lowercase=False)
    assert examine_text(tmp_path, sample_documents(), wrong)["casing"].level == "problem"


def test_broken_lines_are_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path, sample_documents())
    path.write_bytes(path.read_bytes() + b"\n\xff\xfe broken\n")
    found = by_name(data_findings(look(path, tokenizer)))["readable"]
    assert found.level == "warning"
    assert "not UTF-8" in found.figure


def test_nothing_to_look_at_is_one_line(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "empty.txt"
    path.write_text("\n\n")
    with pytest.raises(BertkitError, match="no text to look at"):
        look(path, tokenizer)


def test_pieces_are_counted_as_the_vocabulary_report_counts_them(tokenizer: Tokenizer) -> None:
    texts = [line for document in sample_documents()[:40] for line in document] + ["Жук и naïve 3.5"]
    counts = PieceCounts(tokenizer)
    for ids in tokenizer.encode_ids(texts):
        counts.add(np.array(ids))
    report = measure_vocabulary(tokenizer, texts)
    assert (counts.num_words, counts.num_unknown) == (report.num_words, report.num_unknown)
    assert counts.fertility == pytest.approx(report.fertility, rel=0.01)


def test_the_budget_is_shared_among_files(tmp_path: Path, tokenizer: Tokenizer) -> None:
    for number, part in enumerate((sample_documents()[::2], sample_documents()[1::2])):
        (tmp_path / f"{number}.txt").write_text("\n\n".join("\n".join(d) for d in part), encoding="utf-8")
    source = TextSource([tmp_path], tokenizer, 4000)
    seen = look_at(source)
    share, how = source.extent(seen.num_characters)
    assert 3500 < seen.num_characters < 6000
    assert 0 < share < 0.5
    assert "beginnings of 2 files" in how


def test_what_was_not_read_is_not_called_all_of_it(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, sample_documents())
    (tmp_path / "small.txt").write_text("A dog.\n")
    budget = sum(len(line) for document in sample_documents() for line in document)  # a half of it is for each file
    seen = look_at(TextSource([tmp_path], tokenizer, budget))
    assert 0.4 < seen.share < 0.7
    assert seen.source.extent(seen.num_characters)[1].startswith("the beginnings of 2 files")
    monkeypatch.setattr(sample, "MOST_FILES", 1)
    (tmp_path / "corpus.txt").write_text("A cat sleeps.\n")
    seen = look_at(TextSource([tmp_path], tokenizer, 10**6))
    assert seen.share < 1.0
    assert seen.source.extent(seen.num_characters)[1].startswith("the beginnings of 1 file ")


def test_the_share_is_one_of_characters_in_any_script(tmp_path: Path) -> None:
    own = train_vocabulary(JAPANESE, size=300, lowercase=True)
    seen = look_at(TextSource([write(tmp_path, [[line] for line in JAPANESE] * 40)], own, 2000))
    assert seen.share == pytest.approx(2000 / (40 * sum(map(len, JAPANESE))), rel=0.1)


def test_characters_without_tokens_are_no_text(tmp_path: Path, tokenizer: Tokenizer) -> None:
    found = examine_text(tmp_path, [["\ue000\ue001"], *sample_documents()[:3]], tokenizer)
    assert found["looked at"].values["num_documents"] == 3
    with pytest.raises(BertkitError, match="no text to look at"):
        look(write(tmp_path, [["\ue000\ue001"]]), tokenizer)


def shard(documents: list[list[int]]) -> Shard:
    """Documents by the lengths of their sentences; every token is its own place."""
    lengths = [length for document in documents for length in document]
    return Shard(
        np.arange(sum(lengths), dtype=np.uint32),
        np.cumsum([0, *lengths], dtype=np.int64),
        np.cumsum([0, *map(len, documents)], dtype=np.int64),
    )


@given(
    st.lists(st.lists(st.integers(1, 3000), min_size=1, max_size=12), min_size=1, max_size=40), st.integers(1, 60_000)
)
@settings(max_examples=60, deadline=None)
def test_a_part_of_a_store_is_bounded_and_keeps_tokens_in_order(documents: list[list[int]], most: int) -> None:
    made = shard(documents)
    store = TokenStore(Path("memory"), None, [made])  # type: ignore[arg-type]
    part = part_of_store(store, most)
    assert isinstance(part, StorePart)
    tokens = [token for piece in part.shards for d in shard_documents(piece) for s in d for token in s.tolist()]
    assert tokens == sorted(set(tokens))
    assert len(tokens) == part.num_tokens
    if part.num_tokens < len(made.tokens):
        assert part.num_tokens <= most + 200 * 4000  # a stretch is at least a thousand tokens and a whole sentence
    else:
        assert tokens == list(range(len(made.tokens)))
