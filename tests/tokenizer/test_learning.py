"""A vocabulary from files: bounded by the sample, repeatable, and measured on text that it was not learned from."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit.errors import BertkitError
from bertkit.text.sampling import TextSample
from bertkit.tokenizer import Tokenizer, learning
from bertkit.tokenizer.learning import LearnedVocabulary, VocabularyOptions, learn_vocabulary, parse_size
from tests.tokenizer.strings import generated_strings

LINES = [" ".join(line.split()) for line in generated_strings(1200, seed=9)]
LINES = [line for line in LINES if line]
OPTIONS = VocabularyOptions(size=700, sample_bytes=20_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lines in thirds: text, rows, columns."""
    folder = tmp_path_factory.mktemp("corpus")
    thirds = [LINES[start::3] for start in range(3)]
    (folder / "a.txt").write_text("\n\n".join(thirds[0]), encoding="utf-8")
    rows = "\n".join(json.dumps({"text": line}) for line in thirds[1])
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    pq.write_table(pa.table({"text": thirds[2]}), folder / "c.parquet")
    return folder


def test_the_same_files_and_seed_give_the_same_ids(folder: Path) -> None:
    here = learn_vocabulary([folder], OPTIONS)
    files = [folder / "c.parquet", folder / "a.txt", folder / "b.jsonl.gz"]
    assert learn_vocabulary(files, OPTIONS).tokenizer.tokens == here.tokenizer.tokens, "order plays no part"
    other = learn_vocabulary([folder], VocabularyOptions(size=700, sample_bytes=20_000, seed=1))
    assert other.tokenizer.tokens != here.tokenizer.tokens
    assert 19_000 < here.num_sampled_bytes <= 20_000 < here.num_seen_bytes
    assert here.reading.num_files == 3


def test_workers_change_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "WORTH_WORKERS", 0)
    ids = [
        learn_vocabulary([folder], VocabularyOptions(size=400, num_workers=workers)).tokenizer.fingerprint
        for workers in (1, 2)
    ]
    assert ids[0] == ids[1]


def test_what_it_is_measured_on(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "held.txt").write_text("one word\n")
    steps: dict[str, int] = {}

    def step(what: str, amount: int) -> None:
        steps[what] = steps.get(what, 0) + amount

    given = learn_vocabulary([folder], OPTIONS, held_out=tmp_path / "held.txt", step=step)
    assert given.measured.num_words == 2
    assert steps["paragraphs read"] >= steps["paragraphs counted"] > 0
    assert steps["pieces learned"] == given.tokenizer.vocab_size
    own = learn_vocabulary([folder], OPTIONS)
    assert own.measured_on == "held-out paragraphs of these files"
    small = learn_vocabulary([tmp_path], VocabularyOptions(size=100))
    assert small.measured_on == "the text that it was learned from"
    check_report(own)


def check_report(learned: LearnedVocabulary) -> None:
    stored = json.loads(json.dumps(learned.to_json()))
    assert stored["measured"]["num_words"] == learned.measured.num_words > 0
    assert stored["fingerprint"] == learned.tokenizer.fingerprint
    assert any("pieces a word" in line for line in learned.lines())


def test_unused_rows_and_casing(folder: Path, tmp_path: Path) -> None:
    options = VocabularyOptions(size=500, lowercase=False, num_unused=7)
    tokenizer = learn_vocabulary([folder], options).tokenizer
    assert tokenizer.tokens[5:12] == tuple(f"[unused{n}]" for n in range(7))
    assert not tokenizer.lowercase
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.tokens, again.fingerprint) == (tokenizer.tokens, tokenizer.fingerprint)


def test_what_cannot_be_learned(tmp_path: Path) -> None:
    for bad in ({"size": 5}, {"sample_bytes": 0}, {"num_unused": -1}, {"num_workers": 0}):
        with pytest.raises(BertkitError, match="at least"):
            VocabularyOptions(**bad)  # type: ignore[arg-type]
    (tmp_path / "a.txt").write_text("word")
    with pytest.raises(BertkitError, match="no room"):
        learn_vocabulary([tmp_path], VocabularyOptions(size=20, num_unused=20))
    (tmp_path / "b.txt").write_text(" \n")
    with pytest.raises(BertkitError, match="no text to measure on"):
        learn_vocabulary([tmp_path], OPTIONS, held_out=tmp_path / "b.txt")
    with pytest.raises(BertkitError, match="no word"):
        learn_vocabulary([tmp_path / "b.txt"], OPTIONS)
    (tmp_path / "c.jsonl").write_text('{"body": "words"}\n' * 3)
    with pytest.raises(BertkitError, match=r'3 lines or rows were left out, the first: .*line 1: .*field "text"'):
        learn_vocabulary([tmp_path / "c.jsonl"], OPTIONS)


def test_a_text_that_is_too_small_for_the_size_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The dog runs.\nThe dog sleeps.\n")
    learned = learn_vocabulary([tmp_path], VocabularyOptions(size=1000))
    assert f"{learned.tokenizer.vocab_size} tokens, not 1,000: this text has no more pieces" in learned.lines()
    exact = learn_vocabulary([tmp_path], VocabularyOptions(size=learned.tokenizer.vocab_size))
    assert not any("no more pieces" in line for line in exact.lines())


@pytest.mark.parametrize(
    ("text", "size"), [("200MB", 200 * 10**6), ("1.5 gb", 15 * 10**8), ("64MiB", 2**26), ("10k", 10**4), ("1000", 1000)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "many", "5 bananas", "-1MB", "MB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(BertkitError, match="is no size"):
        parse_size(text)


def test_a_sample_too_small_for_any_paragraph_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one long line of words " * 20)
    with pytest.raises(BertkitError, match="no paragraph fits into a sample of 100 bytes; give a larger one"):
        learn_vocabulary([tmp_path], VocabularyOptions(size=100, sample_bytes=100))


def test_a_single_paragraph_is_learned_from_and_not_held_out(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for number in range(1000):  # one in 200 has a hash for holding out
        text = f"number {number} of many"
        sample = TextSample(10**6, max_held_out_bytes=10**6)
        sample.add(text)
        if sample.held_out:
            break
    path.write_text(text)
    learned = learn_vocabulary([path], VocabularyOptions(size=100))
    assert learned.measured_on == "the text that it was learned from"
    assert learned.num_sampled_bytes == len(text)
