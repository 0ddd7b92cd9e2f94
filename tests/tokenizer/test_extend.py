"""Adding words to a vocabulary: they become whole, all other ids stay, and what is not added is named."""

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from bertkit.errors import BertkitError
from bertkit.tokenizer import Tokenizer, train_vocabulary
from bertkit.tokenizer.extend import extend_vocabulary
from bertkit.tokenizer.pipeline import added_token
from tests.tokenizer.strings import PROSE, generated_strings

WORDS = ["myocarditis", "Penicillin", "the", "x-ray", "", "  ", "MYOCARDITIS", "!", "x" * 101, "\u200b"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_vocabulary(PROSE * 3, size=400, lowercase=True, num_unused=3)


@pytest.mark.parametrize("into_unused", [False, True])
def test_words_become_whole_and_other_ids_stay(tokenizer: Tokenizer, into_unused: bool, tmp_path: Path) -> None:
    extended = extend_vocabulary(tokenizer, WORDS, into_unused=into_unused)
    new = extended.tokenizer
    assert [entry.word for entry in extended.added] == ["myocarditis", "penicillin"]
    first = tokenizer.id("[unused0]") if into_unused else tokenizer.vocab_size
    assert [entry.id for entry in extended.added] == [first, first + 1]
    assert [entry.pieces for entry in extended.added] == tokenizer.encode_ids(["myocarditis", "penicillin"])
    assert new.encode_ids(["Myocarditis and penicillin"]) == [[first, tokenizer.id("and"), first + 1]]
    kept = [token for token in tokenizer.tokens if token in new]
    assert len(kept) == tokenizer.vocab_size - 2 * into_unused
    assert all(new.id(token) == tokenizer.id(token) for token in kept)
    new.save(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == new.fingerprint
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in [*generated_strings(200, seed=5), "Myocarditis, penicillin; penicillins."]:
        assert theirs(text)["input_ids"] == new.encode(text).ids


def test_what_is_skipped_is_named(tokenizer: Tokenizer) -> None:
    skipped = {entry.word: entry.reason for entry in extend_vocabulary(tokenizer, WORDS).skipped}
    assert skipped == {
        "the": "is whole already",
        "x-ray": "is 3 words for BERT (x - ray); add those that are cut",
        "MYOCARDITIS": "is given twice",
        "!": "is whole already",
        "x" * 101: "has more than 100 characters",
        "\u200b": "is no word for BERT",
    }


def test_tokens_added_by_others_keep_their_ids(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)

    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    spec["added_tokens"].append(added_token("<user>", tokenizer.vocab_size, special=True))
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    old = Tokenizer.load(tmp_path)
    new = extend_vocabulary(old, ["myocarditis"]).tokenizer
    assert new.id("<user>") == old.id("<user>") == tokenizer.vocab_size
    assert new.id("myocarditis") == tokenizer.vocab_size + 1
    assert new.encode_ids(["<user> myocarditis"]) == [[tokenizer.vocab_size, tokenizer.vocab_size + 1]]


def test_what_cannot_be_added(tokenizer: Tokenizer) -> None:
    with pytest.raises(BertkitError, match=r"4 words need .* has 3; append"):
        extend_vocabulary(tokenizer, ["qqqa", "qqqb", "qqqc", "qqqd"], into_unused=True)
    with pytest.raises(BertkitError, match="no word to add: 'the' is whole already"):
        extend_vocabulary(tokenizer, ["the"])
    with pytest.raises(BertkitError, match="surrogate"):
        extend_vocabulary(tokenizer, ["\ud800"])


def test_cased_words_keep_their_capitals() -> None:
    cased = train_vocabulary(PROSE * 3, size=400, lowercase=False)
    new = extend_vocabulary(cased, ["Myocarditis", "myocarditis"]).tokenizer
    assert new.tokens[-2:] == ("Myocarditis", "myocarditis")
    assert cased.split_words("Don't STOP") == ["Don", "'", "t", "STOP"]


def test_an_unused_row_that_somebody_uses_is_not_free(tokenizer: Tokenizer, tmp_path: Path) -> None:
    spec = json.loads(json.dumps(tokenizer.spec))
    spec["added_tokens"].append(added_token("[unused0]", tokenizer.id("[unused0]"), special=True))
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    extended = extend_vocabulary(Tokenizer.load(tmp_path), ["penicillin"], into_unused=True)
    assert [entry.id for entry in extended.added] == [tokenizer.id("[unused1]")]
    assert extended.tokenizer.id("[unused0]") == tokenizer.id("[unused0]")
