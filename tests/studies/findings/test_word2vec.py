"""word2vec on a store: pieces become words again, documents are thinned evenly, the same seed gives the same vectors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.corpus.prepare.run import prepare
from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.studies.findings import word2vec
from bertkit.studies.findings.word2vec import (
    Word2VecConfig,
    has_gensim,
    join_pieces,
    phrase_vector,
    store_sentences,
    train_word2vec,
)
from tests.training.tiny import tokenizer

SPECIAL = {"[CLS]", "[UNK]"}
needs_gensim = pytest.mark.skipif(not has_gensim(), reason="gensim is not installed: pip install 'bertkit[studies]'")


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["play", "##ing", "is", "fun"], ["playing", "is", "fun"]),
        (["[CLS]", "un", "##bia", "##sed"], ["unbiased"]),
        (["a", "[UNK]", "##s"], ["a", "##s"]),  # what it belonged to is not known
        (["##ing"], ["##ing"]),
        ([], []),
    ],
)
def test_pieces_become_words(pieces: list[str], words: list[str]) -> None:
    assert join_pieces(pieces, SPECIAL) == words


@given(st.lists(st.lists(st.text("abc", min_size=1, max_size=2), min_size=1, max_size=4), max_size=6))
def test_cut_words_are_whole_again(words: list[list[str]]) -> None:
    pieces = [piece if place == 0 else f"##{piece}" for word in words for place, piece in enumerate(word)]
    assert join_pieces(pieces, SPECIAL) == ["".join(word) for word in words]


def test_a_part_of_the_documents_stands_for_all(tmp_path: Path) -> None:
    text = "\n\n".join(f"w{number} w1 w2 .\nw3 w{number} ." for number in range(10))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    prepare([tmp_path / "text.txt"], tokenizer(), tmp_path / "store")
    store = TokenStore.open(tmp_path / "store", tokenizer())
    whole = list(store_sentences(store, tokenizer(), store.num_tokens))
    part = list(store_sentences(store, tokenizer(), round(0.3 * store.num_tokens)))
    assert len(whole) == store.num_sentences
    firsts = [sentence[0] for sentence in part if len(sentence) == 3]
    assert firsts == ["w3", "w6", "w9"]


def corpus() -> list[list[str]]:
    random = np.random.default_rng(0)
    groups = (["cat", "dog", "fur", "paw"], ["bank", "money", "loan", "coin"])
    return [[str(word) for word in random.choice(groups[number % 2], 6)] for number in range(400)]


@needs_gensim
def test_company_makes_the_vector_and_the_seed_repeats_it() -> None:
    config = Word2VecConfig(dimensions=16, epochs=10, least_count=1)
    first, again, other = (train_word2vec(corpus(), config, seed) for seed in (0, 0, 1))
    assert set(first) == {"cat", "dog", "fur", "paw", "bank", "money", "loan", "coin"}
    assert all(np.array_equal(first[word], again[word]) for word in first)
    assert not np.array_equal(first["cat"], other["cat"])
    cosines = {word: first["cat"] @ first[word] / np.linalg.norm(first[word]) for word in ("dog", "money")}
    assert cosines["dog"] > cosines["money"]
    assert set(train_word2vec(corpus(), config, 0, {"cat", "nowhere"})) == {"cat"}


@needs_gensim
def test_too_little_text_is_one_line() -> None:
    with pytest.raises(BertkitError, match="no word occurs 5 times"):
        train_word2vec([["one", "two"]], Word2VecConfig())


def test_without_gensim_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gensim.models", None)
    with pytest.raises(BertkitError, match=r"pip install 'bertkit\[studies\]'"):
        train_word2vec([["a"]], Word2VecConfig())


@pytest.mark.parametrize("change", [{"dimensions": 0}, {"epochs": 0}, {"most_tokens": 0}])
def test_settings_are_checked(change: dict[str, Any]) -> None:
    with pytest.raises(BertkitError, match="at least 1"):
        word2vec.Word2VecConfig(**change)


def test_a_phrase_is_the_mean_of_what_is_known() -> None:
    vectors = {"a": np.array([1.0, 0.0], np.float32), "b": np.array([0.0, 1.0], np.float32)}
    found = phrase_vector(["a", "b", "c"], vectors)
    assert found is not None
    assert found.tolist() == [0.5, 0.5]
    assert phrase_vector(["c"], vectors) is None
