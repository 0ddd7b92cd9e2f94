"""`bertkit vocab train` and `extend` as people run them."""

from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.loading import load
from bertkit.text.samples import sample_documents
from bertkit.tokenizer import Tokenizer
from tests.cli import running


def run(*arguments: str | Path) -> str:
    return running.run("vocab", *map(str, arguments))[0]


def run_json(*arguments: str | Path) -> Any:
    return running.run_json("vocab", *map(str, arguments))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "texts" / "everyday.txt"
    path.parent.mkdir()
    path.write_text("\n\n".join("\n".join(document) for document in sample_documents()), encoding="utf-8")
    return path


def test_train_writes_a_vocabulary_that_reloads_to_the_same_ids(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "vocab"
    shown = run_json("train", text.parent, "-o", out, "--size", "600", "--unused", "10", "--sample", "1MB")
    assert {path.name for path in out.iterdir()} == {"vocab.txt", "tokenizer.json", "tokenizer_config.json"}
    loaded = Tokenizer.load(out)
    assert (loaded.fingerprint, loaded.vocab_size) == (shown["fingerprint"], shown["vocab_size"])
    assert loaded.vocab_size == 600
    assert loaded.lowercase
    assert Tokenizer.load(out / "vocab.txt", lowercase=True).tokens == loaded.tokens
    again = run_json("train", text, "-o", tmp_path / "again", "--size", "600", "--unused", "10", "--sample", "1MB")
    assert again["fingerprint"] == shown["fingerprint"]


def test_train_reports_on_held_out_text(text: Path, tmp_path: Path) -> None:
    (tmp_path / "held.txt").write_text("The dog sleeps.\n")
    shown = run("train", text, "-o", tmp_path / "v", "--size", "500", "--cased", "--held-out", tmp_path / "held.txt")
    assert "pieces a word (fertility): " in shown
    assert "measured on 3 words" in shown
    assert not Tokenizer.load(tmp_path / "v").lowercase


def test_extend_adds_words(bert: Bert, folder: Path, text: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("myocarditis\nthe\n\nPenicillin\n")
    shown = run_json("extend", folder, words, "-o", tmp_path / "new", "--held-out", text)
    assert [entry["word"] for entry in shown["added"]] == ["myocarditis", "penicillin"]
    assert [entry["word"] for entry in shown["skipped"]] == ["the"]
    assert shown["held_out_before"]["num_words"] > 100
    new = load(tmp_path / "new", device="cpu")
    assert new.tokenizer.vocab_size == new.config.vocab_size == bert.config.vocab_size + 2
    lines = run("extend", folder, words, "-o", tmp_path / "other")
    assert "added 2 words" in lines


def test_one_line_says_what_is_wrong(folder: Path, text: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("myocarditis\n")
    refused: list[tuple[list[str | Path], str]] = [
        (["extend", folder, words, "-o", tmp_path / "a", "--into-unused"], "need as many"),
        (["extend", folder, tmp_path / "gone.txt", "-o", tmp_path / "b"], "no file"),
        (["train", text, "-o", tmp_path / "c", "--sample", "much"], "is no size"),
        (["train", tmp_path / "gone", "-o", tmp_path / "d"], "no file or folder"),
        (["train", text, "-o", folder], "holds a model, whose words these would not be"),
    ]
    for arguments, said in refused:
        with pytest.raises(BertkitError, match=said) as caught:
            run(*arguments)
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("command", ["train", "extend"])
def test_help_has_an_example(command: str) -> None:
    shown = run(command, "--help")
    assert f"Example: bertkit vocab {command}" in shown
    assert "[unused] rows" in " ".join(shown.split()), "brackets are no markup"
