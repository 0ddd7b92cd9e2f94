"""From text files to a store: against a plain version in memory, for any number of workers, and what is refused."""

import gzip
import json
import os
import random
import shutil
import string
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.corpus.prepare import blocks as prepare_blocks
from bertkit.corpus.prepare import parts as prepare_parts
from bertkit.corpus.prepare.blocks import PrepareOptions
from bertkit.corpus.prepare.estimate import estimate
from bertkit.corpus.prepare.plan import WORK, Plan
from bertkit.corpus.prepare.report import read_report
from bertkit.corpus.prepare.run import prepare
from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.text.sentences import split_sentences
from bertkit.tokenizer import Tokenizer

WORDS = [
    "dog",
    "cat",
    "bird",
    "runs",
    "sleeps",
    "sings",
    "loud",
    "small",
    "garden",
    "river",
    "milk",
    "fair",
    "town",
    "seldom",
    "often",
    "never",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS = [*SPECIAL, *string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase), ".", *WORDS]
PARAGRAPHS = ["The dog runs. A cat sleeps.", "Birds sing.", "Milk is fair.", "A river.", "\u200b", "Ωmega. The town."]
FILES = st.lists(
    st.lists(st.lists(st.sampled_from(PARAGRAPHS), min_size=1, max_size=5), max_size=5), min_size=1, max_size=3
)

Corpus = list[list[list[str]]]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(TOKENS, lowercase=True)


def write_corpus(folder: Path, files: Corpus) -> list[Path]:
    """Files of documents of paragraphs, a blank line between documents."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, documents in enumerate(files):
        paths.append(folder / f"text-{number}.txt")
        paths[-1].write_text("\n\n".join("\n".join(document) for document in documents) + "\n", encoding="utf-8")
    return paths


def random_corpus(seed: int, num_files: int, num_documents: int) -> Corpus:
    """Documents of random sentences, a tenth of the paragraphs the same."""
    rng = random.Random(seed)

    def paragraph() -> str:
        if rng.random() < 0.1:
            return rng.choice(PARAGRAPHS[:4])
        sentences = (" ".join(rng.choices(WORDS, k=rng.randint(3, 12))).capitalize() for _ in range(rng.randint(1, 5)))
        return ". ".join(sentences) + "."

    return [[[paragraph() for _ in range(rng.randint(1, 6))] for _ in range(num_documents)] for _ in range(num_files)]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a store."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stored(folder: Path) -> list[list[list[int]]]:
    """All documents of a store."""
    return [[sentence.tolist() for sentence in document] for document in TokenStore.open(folder).documents()]


def naive(files: Corpus, tokenizer: Tokenizer) -> list[list[list[int]]]:
    """The same in memory: the first of equal paragraphs stays, empty documents go."""
    seen: set[str] = set()
    documents = []
    for document in (document for documents in files for document in documents):
        sentences = []
        for paragraph in document:
            if paragraph not in seen:
                seen.add(paragraph)
                sentences += [ids for ids in tokenizer.encode_ids(split_sentences(paragraph), special=False) if ids]
        documents.append(sentences)
    return [document for document in documents if document]


def test_a_document_that_is_stored_in_parts_is_told(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_blocks, "LONGEST_DOCUMENT", 1024)
    (tmp_path / "book.txt").write_text("\n".join(f"The dog runs {number} times." for number in range(100)))
    report = prepare([tmp_path / "book.txt"], tokenizer, tmp_path / "store", workers=1)
    assert report.num_documents == 3
    said = "2 times a document or line was too long and was given in parts, each a document"
    assert said in report.lines()
    assert said in (tmp_path / "store" / "report.txt").read_text()


@settings(max_examples=25, deadline=None)
@given(files=FILES, at_once=st.sampled_from([1, 2, 1 << 13]))
def test_documents_are_those_of_the_plain_version(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, files: Corpus, at_once: int
) -> None:
    folder = tmp_path_factory.mktemp("prepare")
    paths = write_corpus(folder / "text", files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare_parts, "PARAGRAPHS_AT_ONCE", at_once)
        patch.setattr(prepare_blocks, "BLOCK_CHARACTERS", 20 * at_once)
        report = prepare(paths, tokenizer, folder / "store", workers=1)
    visible = [p.replace("\u200b", "") for documents in files for document in documents for p in document]
    cleaned = [[[p.replace("\u200b", "") for p in document] for document in documents] for documents in files]
    assert stored(folder / "store") == naive(cleaned, tokenizer)
    counts = Counter(filter(None, visible))
    assert report.num_duplicates == counts.total() - len(counts)
    assert report.duplicate_characters == sum((count - 1) * len(text) for text, count in counts.items())
    assert [entry.count for entry in report.most_repeated] == sorted(
        (c for c in counts.values() if c > 1), reverse=True
    )


@pytest.mark.parametrize("sizes", [[30, 30, 30, 30, 30, 30], [200, 3, 3]], ids=["a file each", "one file together"])
def test_the_bytes_are_the_same_for_one_and_two_workers(
    tokenizer: Tokenizer, tmp_path: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_blocks, "BLOCK_CHARACTERS", 2000)  # in the parent, which reads what is done together
    files = [random_corpus(number, 1, size)[0] for number, size in enumerate(sizes)]
    paths = write_corpus(tmp_path / "text", files)
    done: list[int] = []
    reports = [prepare(paths, tokenizer, tmp_path / str(n), progress=done.append, workers=n) for n in (1, 2)]
    assert reports[0] == reports[1]
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert stored(tmp_path / "2") == naive(files, tokenizer)
    assert sum(done) == 2 * reports[0].read["num_characters"]
    TokenStore.open(tmp_path / "2", tokenizer).verify()


def test_without_dedup_everything_stays(tokenizer: Tokenizer, tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "text", [[["A river."], ["A river."]]])
    report = prepare(paths, tokenizer, tmp_path / "store", PrepareOptions(dedup=False), workers=1)
    assert report.num_documents == 2
    assert report.num_duplicates == 0


def test_a_sentence_a_line_is_not_split_and_only_whole_documents_are_duplicates(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    paths = write_corpus(tmp_path / "text", [[["Dog. Cat.", "Bird."], ["Bird."], ["Dog. Cat.", "Bird."]]])
    prepare(paths, tokenizer, tmp_path / "store", PrepareOptions(sentences="line"), workers=1)
    assert stored(tmp_path / "store") == [tokenizer.encode_ids(["Dog. Cat.", "Bird."]), tokenizer.encode_ids(["Bird."])]


@pytest.mark.parametrize(("documents", "expected"), [("blank-line", 2), ("row", 3), ("file", 1)])
def test_what_a_document_is(tokenizer: Tokenizer, tmp_path: Path, documents: str, expected: int) -> None:
    paths = write_corpus(tmp_path / "text", [[["Dog.", "Cat."], ["Bird."]]])
    options = PrepareOptions(documents=documents)  # type: ignore[arg-type]
    assert prepare(paths, tokenizer, tmp_path / "store", options, workers=1).num_documents == expected


def test_rows_and_packed_files(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"body": "Dog.\\nCat."}\nbroken\n{"body": "Bird."}\n')
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(b"River."))
    report = prepare([rows, packed], tokenizer, tmp_path / "store", PrepareOptions(field="body"), workers=1)
    assert report.num_documents == 3
    assert report.read["named"] == [{"file": "rows.jsonl", "line": 2, "reason": "not JSON"}]


def test_broken_utf8_is_named_and_the_rest_is_there(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"Dog.\n\nCat \xff\xfe.\n\nBird.\n")
    report = prepare([path], tokenizer, tmp_path / "store", workers=1)
    assert stored(tmp_path / "store") == [tokenizer.encode_ids(["Dog."]), tokenizer.encode_ids(["Bird."])]
    assert report.read["named"] == [{"file": "text.txt", "line": 3, "reason": "not UTF-8"}]
    assert "text.txt, line 3: not UTF-8" in (tmp_path / "store" / "report.txt").read_text()


def test_the_report(tokenizer: Tokenizer, tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "text", [[["dog cat. Bird runs never."], ["Ω dog."]], [["Ω dog."]]])
    report = prepare(paths, tokenizer, tmp_path / "store", workers=1)
    assert (report.num_documents, report.num_sentences, report.num_tokens) == (2, 3, 10)
    assert report.tokens_per_sentence == {"mean": 3.33, "median": 3, "p90": 4, "p99": 4}
    assert report.unknown_share == 0.1
    assert report.num_emptied_documents == 1
    assert [(entry.count, entry.text) for entry in report.most_repeated] == [(2, "[UNK] dog.")]
    assert report.num_bytes == sum(p.stat().st_size for p in (tmp_path / "store").glob("shard-*"))
    assert read_report(tmp_path / "store") == report


def test_empty_files_make_empty_shards(tokenizer: Tokenizer, tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "text", [[], [["Dog."]], []])
    assert prepare(paths, tokenizer, tmp_path / "store", workers=1).num_documents == 1
    assert [shard.num_documents for shard in TokenStore.open(tmp_path / "store").shards] == [0, 1, 0]
    prepare(paths[:1], tokenizer, tmp_path / "empty", workers=1)
    assert TokenStore.open(tmp_path / "empty").num_tokens == 0


def test_a_finished_store_is_left_alone(tokenizer: Tokenizer, tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "text", random_corpus(1, 2, 5))
    first = prepare(paths, tokenizer, tmp_path / "store", workers=1)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").iterdir()}
    assert prepare(paths, tokenizer, tmp_path / "store", workers=1) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").iterdir()} == times


@pytest.mark.parametrize("finished", [True, False])
def test_what_changed_since_the_first_start_is_refused(tokenizer: Tokenizer, tmp_path: Path, finished: bool) -> None:
    paths = write_corpus(tmp_path / "text", [[["Dog."]], [["Cat."]]])
    store = tmp_path / "store"
    prepare(paths, tokenizer, store, workers=1)
    if not finished:
        manifest = json.loads((store / "manifest.json").read_text())
        plan = {key: manifest[key] for key in ("vocab_size", "options", "inputs")}
        (store / WORK).mkdir()
        (store / WORK / "plan.json").write_text(json.dumps(plan | {"fingerprint": manifest["tokenizer_fingerprint"]}))
        (store / "manifest.json").unlink()
    other = Tokenizer.from_vocab([*TOKENS, "more"], lowercase=True)
    with pytest.raises(BertkitError, match="another tokenizer"):
        prepare(paths, other, store, workers=1)
    with pytest.raises(BertkitError, match="option dedup=True"):
        prepare(paths, tokenizer, store, PrepareOptions(dedup=False), workers=1)
    with pytest.raises(BertkitError, match="other input files"):
        prepare(paths[::-1], tokenizer, store, workers=1)
    paths[1].write_text("Cow.\n")
    with pytest.raises(BertkitError, match=r"another content of text-1\.txt"):
        prepare(paths, tokenizer, store, workers=1)


def test_bad_arguments_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "text", [[["Dog."]]])
    with pytest.raises(BertkitError, match="holds other files"):
        prepare(paths, tokenizer, tmp_path / "text", workers=1)
    with pytest.raises(BertkitError, match="no file or folder"):
        prepare([tmp_path / "gone.txt"], tokenizer, tmp_path / "store", workers=1)
    with pytest.raises(BertkitError, match="no input files"):
        prepare([], tokenizer, tmp_path / "store", workers=1)
    with pytest.raises(BertkitError, match="at least 1"):
        prepare(paths, tokenizer, tmp_path / "store", workers=0)
    with pytest.raises(BertkitError, match="choose blank-line, row, file"):
        PrepareOptions(documents="page")  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_changes_while_it_is_read_is_refused(tokenizer: Tokenizer, tmp_path: Path, workers: int) -> None:
    paths = write_corpus(tmp_path / "text", random_corpus(1, 1, 300))

    def grow(count: int) -> None:
        with paths[0].open("a") as file:
            file.write("More.\n")

    with pytest.raises(BertkitError, match=r"changed while it was read; .* start again with another folder"):
        prepare(paths, tokenizer, tmp_path / "store", progress=grow, workers=workers)
    with pytest.raises(BertkitError, match="another content"):  # so nothing less would do
        prepare(paths, tokenizer, tmp_path / "store", workers=1)


def test_the_estimate_is_near(tokenizer: Tokenizer, tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "text", random_corpus(1, 3, 200))
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(gzip.compress(paths[0].read_bytes()))
    expected = estimate([*paths[1:], packed], tokenizer, tmp_path / "store", PrepareOptions(dedup=False), workers=1)
    assert not (tmp_path / "store").exists()
    report = prepare([*paths[1:], packed], tokenizer, tmp_path / "store", PrepareOptions(dedup=False), workers=1)
    assert expected.num_tokens == pytest.approx(report.num_tokens, rel=0.1)
    assert expected.store_bytes == pytest.approx(report.num_bytes, rel=0.1)
    assert expected.seconds > 0


def test_the_estimate_counts_characters_of_any_script(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "chinese.txt"
    path.write_text("\n\n".join("".join(chr(0x4E00 + 7 * n + m) for m in range(40)) for n in range(200)), "utf-8")
    expected = estimate([path], tokenizer, tmp_path / "store", workers=1)
    report = prepare([path], tokenizer, tmp_path / "store", workers=1)
    assert expected.num_tokens == pytest.approx(report.num_tokens, rel=0.05)
    assert expected.num_characters == pytest.approx(report.read["num_characters"], rel=0.05)


def test_a_file_name_that_is_no_utf8_is_no_obstacle(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.txt")
    path.write_bytes(b"Dog.\n\nCat \xff.\n")
    report = prepare([path], tokenizer, tmp_path / "store", workers=1)
    assert report.read["named"] == [{"file": "caf\ufffd.txt", "line": 3, "reason": "not UTF-8"}]
    assert TokenStore.open(tmp_path / "store").manifest.inputs[0].name == "caf\ufffd.txt"
    assert prepare([path], tokenizer, tmp_path / "store", workers=1) == report


@pytest.mark.filterwarnings("ignore:.*other files in")
@pytest.mark.parametrize("finished", [True, False])
def test_a_store_inside_the_folder_of_its_text_is_none_of_the_text(
    tokenizer: Tokenizer, tmp_path: Path, finished: bool
) -> None:
    paths = write_corpus(tmp_path, [[["Dog.", "Cat."], ["Bird."]]])
    report = prepare([tmp_path], tokenizer, tmp_path / "store", workers=1)
    if not finished:  # what a start that was killed early leaves: a plan, and a vocab.txt for the workers
        Plan.of_manifest(TokenStore.open(tmp_path / "store").manifest).write(tmp_path / "plan.json")
        shutil.rmtree(tmp_path / "store")
        tokenizer.save(tmp_path / "store" / WORK / "tokenizer")
        (tmp_path / "plan.json").rename(tmp_path / "store" / WORK / "plan.json")
    assert prepare([tmp_path], tokenizer, tmp_path / "store", workers=1) == report
    assert estimate([tmp_path], tokenizer, tmp_path / "store", workers=1).num_files == len(paths)


def test_a_finished_store_that_lost_a_file_is_not_called_finished(tokenizer: Tokenizer, tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "text", random_corpus(1, 2, 5))
    prepare(paths, tokenizer, tmp_path / "store", workers=1)
    (tmp_path / "store" / "report.json").rename(tmp_path / "report.json")
    with pytest.raises(
        BertkitError, match=r"report\.json cannot be read .*; prepare the store again, into another folder"
    ):
        prepare(paths, tokenizer, tmp_path / "store", workers=1)
    (tmp_path / "report.json").rename(tmp_path / "store" / "report.json")
    (tmp_path / "store" / "shard-00001.tokens.bin").unlink()
    with pytest.raises(BertkitError, match=r"tokens\.bin is missing; prepare the store again, into another folder"):
        prepare(paths, tokenizer, tmp_path / "store", workers=1)
