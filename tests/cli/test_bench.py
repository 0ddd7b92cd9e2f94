"""`bertkit bench`: a row a contestant; with peers the first row is transformers, and float32 rows agree with it."""

from pathlib import Path

from bertkit.cores import has_bfloat16
from tests.cli.running import refusal, rows, run, run_json

FEW = ("--texts", "6", "--rounds", "1", "--threads", "1")


def test_own_engines(folder: Path) -> None:
    out, _ = run("bench", "-m", str(folder), "--no-peers", *FEW)
    narrow = ["bertkit bfloat16"] if has_bfloat16() else []
    assert [row[0] for row in rows(out)] == ["bertkit, PyTorch", "bertkit float32", "bertkit int8", *narrow]


def test_peers_agree_in_float32(folder: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("the dog sleeps\na cat\npenguins swim in the cold sea\n", encoding="utf-8")
    found = run_json("bench", "-m", str(folder), "-f", str(texts), *FEW)
    assert found["num_texts"] == 3
    assert found["notes"] == []
    by_name = {row["name"]: row for row in found["rows"]}
    assert next(iter(by_name)) == "transformers, batches of 32"
    for name in ("transformers, sorted", "ONNX Runtime float32, sorted", "bertkit, PyTorch", "bertkit float32"):
        assert by_name[name]["lowest_cosine"] > 0.9999
    for name in ("transformers bfloat16, sorted", "bertkit bfloat16") if has_bfloat16() else ():
        assert 0.999 < by_name[name]["lowest_cosine"] < 1
    assert all(row["texts_per_second"] > 0 and row["milliseconds"] > 0 for row in found["rows"])


def test_an_empty_file_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    assert refusal("bench", "-m", str(folder), "-f", str(tmp_path / "empty.txt"))
