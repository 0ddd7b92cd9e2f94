"""Sentences encoded from remembered chunks give the ids that the tokenizer gives."""

import string

import numpy as np
import pytest

from bertkit.corpus.prepare import words as prepare_words
from bertkit.corpus.prepare.words import SentenceEncoder, splits_at_spaces
from bertkit.corpus.store import token_dtype
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.encoding import SpecialTokens
from bertkit.tokenizer.folder import Stored
from tests.tokenizer.strings import PROSE, generated_strings, real_lines

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SMALL = [*string.ascii_lowercase, *string.digits, *string.punctuation, *"äéßαжш中日한", "the", "dog", "fair"]
TOKENS = [*SPECIAL, *SMALL, *(f"##{piece}" for piece in SMALL), "##ing"]
CAPITALS = [*string.ascii_uppercase, *(f"##{letter}" for letter in string.ascii_uppercase), "The"]
STRINGS = [*generated_strings(1500, seed=5), *PROSE, *real_lines(300)]


def check(tokenizer: Tokenizer) -> None:
    encoder = SentenceEncoder(tokenizer, token_dtype(tokenizer.vocab_size))
    expected = tokenizer.encode_ids(STRINGS, special=False)
    for _ in range(2):  # the second time from memory
        encoded = [ids for at in range(0, len(STRINGS), 97) for ids in encoder.encode(STRINGS[at : at + 97])]
        assert [np.frombuffer(ids, token_dtype(tokenizer.vocab_size)).tolist() for ids in encoded] == expected


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("most", [200_000, 50])
def test_the_ids_are_the_same(lowercase: bool, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_words, "MOST_KNOWN", most)
    tokenizer = Tokenizer.from_vocab(TOKENS if lowercase else TOKENS + CAPITALS, lowercase=lowercase)
    assert splits_at_spaces(tokenizer)
    check(tokenizer)


def test_a_corpus_cannot_write_special_tokens() -> None:
    tokenizer = Tokenizer.from_vocab(TOKENS, lowercase=True)
    encoder = SentenceEncoder(tokenizer, token_dtype(tokenizer.vocab_size))
    encoded = encoder.encode(["a [MASK] b", "[CLS][SEP]", "the[PAD]dog", "[UNK]"])
    ids = [np.frombuffer(part, np.uint16).tolist() for part in encoded]
    assert not {token_id for row in ids for token_id in row} & tokenizer.special_ids
    assert tokenizer.decode(ids[0]).replace(" ", "") == "a[mask]b"


def test_added_words_are_found_across_spaces() -> None:
    """They are the tokenizer's own, which its user added."""
    spec = Tokenizer.from_vocab(TOKENS, lowercase=True).spec
    word = {**spec["added_tokens"][0], "id": len(TOKENS), "content": "New York", "special": False}
    tokenizer = Tokenizer(
        Stored({**spec, "added_tokens": [*spec["added_tokens"], word]}, SpecialTokens(), None, ""), ""
    )
    assert not splits_at_spaces(tokenizer)
    encoded = SentenceEncoder(tokenizer, token_dtype(tokenizer.vocab_size)).encode(["the New York dog"])
    assert np.frombuffer(encoded[0], np.uint16).tolist() == [TOKENS.index("the"), len(TOKENS), TOKENS.index("dog")]


def test_large_vocabularies_have_wide_ids() -> None:
    many = [*TOKENS, *(f"[unused{number}]" for number in range(66_000)), "penguins"]
    tokenizer = Tokenizer.from_vocab(many, lowercase=True)
    encoded = SentenceEncoder(tokenizer, token_dtype(len(many))).encode(["the Penguins"])
    assert np.frombuffer(encoded[0], np.uint32).tolist() == [many.index("the"), len(many) - 1]


def test_what_is_remembered_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_words, "MOST_KNOWN", 10)
    encoder = SentenceEncoder(Tokenizer.from_vocab(TOKENS, lowercase=True), token_dtype(300))
    encoder.encode(["a b c d e f g h i j k l m n o p", "dog" * 20])
    assert len(encoder._chunks) <= 10
    assert len(encoder._words) <= 10
