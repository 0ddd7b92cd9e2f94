"""Casing: stored with what is written, guessed only where nothing says it, and a wrong one is noticed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bertkit.errors import BertkitError
from bertkit.tokenizer import CasingWarning, Tokenizer, train_vocabulary
from tests.tokenizer.strings import PROSE, weights

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PROTEIN = [*SPECIAL, *"ACDEFGHIKLMNPQRSTVWY"]
CHINESE = [*SPECIAL, "<S>", "<T>", *(chr(c) for c in range(0x4E00, 0x4F00)), *"abc", *(f"##w{i}" for i in range(60))]


def vocabulary(lowercase: bool) -> list[str]:
    return list(train_vocabulary(PROSE * 3, size=400, lowercase=lowercase).tokens)


def folder_with(folder: Path, tokens: list[str], do_lower_case: bool | None = None) -> Path:
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    if do_lower_case is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": do_lower_case}))
    return folder


@pytest.mark.parametrize(
    ("tokens", "lowercase"),
    [(vocabulary(True), True), (vocabulary(False), False), (PROTEIN, False), (CHINESE, True), (SPECIAL, True)],
    ids=["uncased", "cased", "protein", "chinese", "nothing"],
)
def test_casing_is_inferred_when_nothing_says_it(tokens: list[str], lowercase: bool, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(folder_with(tmp_path, tokens))
    assert tokenizer.lowercase == lowercase
    assert tokenizer.casing_source == "inferred from the vocabulary"


def test_an_unclear_vocabulary_is_said_to_be_unclear(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, [*vocabulary(True), "NASA", "COVID"])
    with pytest.warns(CasingWarning, match="does not say whether .* unclear .2 pieces with capitals.*lowercase=False"):
        assert Tokenizer.load(folder).lowercase
    assert not Tokenizer.load(folder, lowercase=False).lowercase


@pytest.mark.parametrize("stored", [True, False])
def test_stored_casing_is_followed_without_a_word(stored: bool, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(folder_with(tmp_path, vocabulary(stored), stored))
    assert tokenizer.lowercase == stored
    assert tokenizer.casing_source == "tokenizer_config.json"
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path).casing_source == "tokenizer.json"
    assert Tokenizer.load(tmp_path).lowercase == stored


@pytest.mark.parametrize("tokens", [vocabulary(False), PROTEIN], ids=["cased", "protein"])
def test_lower_casing_a_cased_vocabulary_is_noticed(tokens: list[str], tmp_path: Path) -> None:
    with pytest.warns(CasingWarning, match="vocab.txt is read as uncased, but it has .* pieces with capitals") as seen:
        assert Tokenizer.load(folder_with(tmp_path, tokens, True)).lowercase
    assert seen[0].filename == __file__
    with pytest.warns(CasingWarning, match="the vocabulary is read as uncased"):
        Tokenizer.from_vocab(tokens, lowercase=True)


def test_keeping_capitals_with_a_lower_case_vocabulary_is_noticed(tmp_path: Path) -> None:
    with pytest.warns(CasingWarning, match="is read as cased, but it has no piece with a capital"):
        assert not Tokenizer.load(folder_with(tmp_path, vocabulary(True), False)).lowercase


@pytest.mark.parametrize("stored", [True, False])
def test_chinese_vocabularies_raise_no_alarm(stored: bool, tmp_path: Path) -> None:
    assert Tokenizer.load(folder_with(tmp_path, CHINESE, stored)).lowercase == stored


def test_files_that_disagree_on_casing(tmp_path: Path) -> None:
    train_vocabulary(PROSE * 3, size=400, lowercase=False).save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    with pytest.warns(CasingWarning) as seen:
        assert Tokenizer.load(tmp_path).lowercase, "transformers follows tokenizer_config.json too"
    assert "disagree on casing" in str(seen[0].message)
    assert not Tokenizer.load(tmp_path, lowercase=False).lowercase


def test_a_pipeline_that_lower_cases_by_itself_stays_as_it_is(tmp_path: Path) -> None:
    spec = json.loads(json.dumps(Tokenizer.from_vocab([*vocabulary(True), "é"], lowercase=True).spec))
    spec["normalizer"]["lowercase"] = False  # which would strip accents too
    spec["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, spec["normalizer"]]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.lowercase
    assert tokenizer.encode("É").tokens[1:-1] == ["é"]
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == tokenizer.fingerprint
    with pytest.raises(BertkitError, match="casing cannot be changed"):
        Tokenizer.load(tmp_path, lowercase=False)


@pytest.mark.parametrize(
    ("kind", "lowercase"), [("uncased", True), ("cased", False), ("multi_cased", False), ("chinese", True)]
)
def test_official_vocabularies(kind: str, lowercase: bool, tmp_path: Path) -> None:
    shutil.copy(weights(f"bert_service/vocab/{kind}_vocab.txt"), tmp_path / "vocab.txt")
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.lowercase == lowercase
    if kind == "chinese":
        assert not Tokenizer.load(tmp_path, lowercase=False).lowercase
        return
    with pytest.warns(CasingWarning):
        Tokenizer.load(tmp_path, lowercase=not lowercase)
