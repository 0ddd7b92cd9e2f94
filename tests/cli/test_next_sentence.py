"""`bertkit next-sentence`: the probabilities of the Python call, the likeliest sentence first."""

from pathlib import Path

import pytest

from bertkit.inference.bert import Bert
from bertkit.model import BertModel
from tests.cli.running import refusal, rows, run, run_json

A = "The man went to the store."
OTHERS = ["He bought milk.", "Penguins cannot fly.", "", "The dog sleeps in the garden all day.", "He bought bread."]


def expected(bert: Bert) -> list[tuple[str, float]]:
    return sorted(((b, bert.next_sentence(A, b)) for b in OTHERS), key=lambda row: -row[1])


def test_the_table_is_ranked(bert: Bert, folder: Path) -> None:
    shown, _ = run("next-sentence", "-m", str(folder), "--device", "cpu", A, *OTHERS)
    assert rows(shown) == [[b, f"{probability:.4f}"] for b, probability in expected(bert)]
    assert f"After: {A}" in shown


def test_json_is_ranked(bert: Bert, folder: Path) -> None:
    plain = run_json("next-sentence", "-m", str(folder), "--device", "cpu", A, *OTHERS)
    assert plain["a"] == A
    assert [row["b"] for row in plain["next"]] == [b for b, _ in expected(bert)]
    assert [row["b"] for row in plain["next"]] != OTHERS
    assert [row["probability"] for row in plain["next"]] == pytest.approx([p for _, p in expected(bert)], abs=1e-5)


def test_too_long_a_pair(folder: Path) -> None:
    assert "64" in refusal("next-sentence", "-m", str(folder), A, "the dog " * 40)


def test_a_model_without_the_head(bert: Bert, tmp_path: Path) -> None:
    Bert(BertModel(bert.config.with_heads(["pooler", "mlm"])), bert.tokenizer).save(tmp_path)
    assert "nsp" in refusal("next-sentence", "-m", str(tmp_path), A, A).lower()


@pytest.mark.parametrize("odd", ["[red]", "[/red]", ":heart:"])
def test_sentences_are_shown_as_they_are(folder: Path, odd: str) -> None:
    shown, _ = run("next-sentence", "-m", str(folder), "--device", "cpu", f"One {odd}", f"two {odd}")
    assert f"After: One {odd}" in shown
    assert rows(shown)[0][0] == f"two {odd}"
