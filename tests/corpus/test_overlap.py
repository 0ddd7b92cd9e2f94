"""Held-out sentences are found in the training text, wherever they stand there, and short ones do not count."""

from pathlib import Path

import numpy as np
import pytest

from bertkit.corpus import overlap
from bertkit.corpus.overlap import LEAST_TOKENS, Overlap, compare_stores
from tests.corpus.test_store import Documents, write_store


def make_documents(seed: int, count: int) -> Documents:
    """Sentences of 1 to 40 random tokens, five a document."""
    random = np.random.default_rng(seed)
    return [[random.integers(5, 300, random.integers(1, 41)).tolist() for _ in range(5)] for _ in range(count)]


def long_sentences(documents: Documents) -> set[tuple[int, ...]]:
    return {tuple(sentence) for document in documents for sentence in document if len(sentence) >= LEAST_TOKENS}


def test_the_count_is_that_of_a_plain_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "SENTENCES_AT_ONCE", 7)  # blocks end inside of documents
    train, held_out = make_documents(1, 40), make_documents(2, 20)
    held_out[3] = train[5]
    held_out[4][2:4] = [train[30][1], [5] * 50]
    held_out.append(held_out[3])  # said twice, counted once
    found = compare_stores(
        write_store(tmp_path / "train", [train[:11], [], train[11:]]), write_store(tmp_path / "held", [held_out])
    )
    ours = long_sentences(held_out)
    assert found == Overlap(len(ours), len(ours & long_sentences(train)))
    assert 1 <= found.num_shared <= 6
    assert found.line.startswith(f"{found.num_shared} of {len(ours)} held-out sentences of 8 tokens and more (")


def test_a_store_is_in_itself_and_short_sentences_are_nowhere(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [make_documents(3, 30)])
    assert compare_stores(store, store).share == 1.0
    short = write_store(tmp_path / "short", [[[[5, 6, 7]], [[8] * (LEAST_TOKENS - 1)]]])
    assert compare_stores(short, short) == Overlap(0, 0)
    assert compare_stores(store, short).share == 0.0


def test_a_sentence_that_begins_alike_is_another(tmp_path: Path) -> None:
    sentence = list(range(10, 40))
    train = write_store(tmp_path / "train", [[[sentence]]])
    for other in ([*sentence, 7], sentence[:-1], [9, *sentence[1:]], [*sentence[:-1], 9], sentence[::-1]):
        assert compare_stores(train, write_store(tmp_path / "held", [[[other]]])) == Overlap(1, 0)
