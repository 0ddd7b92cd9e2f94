"""`bertkit fill-mask`: the words and probabilities of the Python call, as a table and as JSON."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bertkit.inference.bert import Bert
from bertkit.inference.prediction import FilledMask
from bertkit.model import BertModel
from tests.cli.running import refusal, rows, run, run_json

ONE, TWO = "The man drank [MASK].", "The [MASK] went to the [MASK] today."


def near(masks: list[FilledMask]) -> Any:
    """The masks as JSON has them; the batch may change the last digits."""
    plain = [asdict(mask) for mask in masks]
    for mask in plain:
        for candidate in mask["candidates"]:
            candidate["probability"] = pytest.approx(candidate["probability"], rel=1e-4)
    return plain


def test_the_table_has_the_words_and_their_probabilities(bert: Bert, folder: Path) -> None:
    shown, notes = run("fill-mask", "-m", str(folder), "--device", "cpu", TWO)
    expected = [
        [str(mask.start), candidate.token, f"{candidate.probability:.4f}"]
        for mask in bert.fill_mask(TWO)
        for candidate in mask.candidates
    ]
    assert len(expected) == 10
    assert rows(shown) == expected
    assert TWO in shown
    assert notes == ""


def test_json_has_every_text_in_the_order_given(bert: Bert, folder: Path) -> None:
    plain = run_json("fill-mask", "-m", str(folder), "--device", "cpu", TWO, ONE, "[MASK]", "-k", "3")
    assert [row["text"] for row in plain] == [TWO, ONE, "[MASK]"]
    assert [len(row["masks"]) for row in plain] == [2, 1, 1]
    for row, masks in zip(plain, bert.fill_mask([TWO, ONE, "[MASK]"], top_k=3), strict=True):
        assert row["masks"] == near(masks)
        assert all(row["text"][mask["start"] : mask["end"]] == "[MASK]" for mask in row["masks"])


def test_candidates(bert: Bert, folder: Path) -> None:
    (row,) = run_json("fill-mask", "-m", str(folder), "--device", "cpu", ONE, "--candidates", "milk, bread,dog")
    assert row["masks"] == near(bert.fill_mask(ONE, candidates=["milk", "bread", "dog"]))
    assert {candidate["token"] for candidate in row["masks"][0]["candidates"]} == {"milk", "bread", "dog"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["The dog"], "no [MASK] in 'The dog'"),
        ([ONE, ""], "no [MASK] in ''"),
        ([ONE, "--candidates", "xylophonist"], "'xylophonist' is not one piece"),
        ([ONE, "--candidates", "milk,"], "'' is not one piece"),
        (["[MASK] " * 70], "64"),
        ([ONE, "--device", "gpu"], "no device is named 'gpu'"),
    ],
)
def test_bad_blanks(folder: Path, arguments: list[str], said: str) -> None:
    assert said in refusal("fill-mask", "-m", str(folder), *arguments)


def test_a_model_without_the_head(bert: Bert, tmp_path: Path) -> None:
    Bert(BertModel(bert.config.with_heads(["pooler"])), bert.tokenizer).save(tmp_path)
    assert "mlm" in refusal("fill-mask", "-m", str(tmp_path), ONE).lower()


@pytest.mark.parametrize("odd", ["[red]", "[/red]", ":smile:", "[link=x]", "\\["])
def test_a_text_is_shown_as_it_is(folder: Path, odd: str) -> None:
    text = f"The {odd} [MASK]"
    assert text in run("fill-mask", "-m", str(folder), "--device", "cpu", text)[0]


def test_rows_of_the_model_beyond_the_vocabulary_are_no_words(bert: Bert) -> None:
    size = bert.tokenizer.vocab_size
    padded = Bert(BertModel(bert.config.with_heads(bert.config.heads, vocab_size=size + 61)), bert.tokenizer)
    (mask,) = padded.fill_mask(ONE, top_k=size + 61)
    assert sorted(candidate.token_id for candidate in mask.candidates) == list(range(size))
