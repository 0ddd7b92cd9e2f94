"""`bertkit export`: files that plain ONNX Runtime reads, and scores of both precisions."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from bertkit.tokenizer import Tokenizer
from tests.cli.running import refusal, run, run_json


def test_files_are_written_and_open_in_plain_runtime(bert: Bert, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "exported"
    found = run_json("export", "-m", str(folder), "-o", str(target), "--int8", "--head", "mlm")
    assert found["difference"] < 1e-3
    assert [Path(name).name for name in found["files"]] == ["model.onnx", "model_int8.onnx"]
    tokenizer = Tokenizer.load(target)
    ids = np.array([tokenizer.encode("the dog sleeps").ids])
    inputs = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    for name in found["files"]:
        (logits,) = onnxruntime.InferenceSession(name).run(None, inputs)
        assert logits.shape == (*ids.shape, bert.config.vocab_size)


def test_scores_of_both_precisions(tmp_path: Path) -> None:
    heads = {"heads": ("pooler", "classifier"), "labels": ("good", "bad")}
    made = untrained(0, num_layers=2, hidden_size=32, intermediate_size=64, initializer_range=0.5, **heads)
    folder = made.save(tmp_path / "reviews")
    file = tmp_path / "dev.csv"
    file.write_text("text,label\nthe dog sleeps,good\na cat,bad\nthe sea,good\n", encoding="utf-8")
    out, _ = run("export", "-m", str(folder), "--int8", "--evaluate", str(file))
    assert "output classifier" in out
    assert "accuracy: float32 " in out
    assert ", int8 " in out
    assert (folder / "onnx" / "int8_channels.safetensors").is_file()


@pytest.mark.parametrize(("option", "kind"), [("--vnni", "INT8"), ("--no-vnni", "UINT8")])
def test_the_eight_bit_file_is_for_the_cpus_asked_for(folder: Path, tmp_path: Path, option: str, kind: str) -> None:
    out, _ = run("export", "-m", str(folder), "-o", str(tmp_path / "new"), "--int8", option)
    assert ("right on any CPU" in out) == (option == "--no-vnni")
    graph = onnx.load(tmp_path / "new" / "onnx" / "model_int8.onnx").graph
    products = [node for node in graph.node if node.op_type == "MatMulIntegerToFloat"]
    kinds = {value.name: onnx.TensorProto.DataType.Name(value.data_type) for value in graph.initializer}
    assert {kinds[node.input[1]] for node in products} == {kind}


def test_refusals_are_one_line(folder: Path, tmp_path: Path) -> None:
    assert "it can give hidden, sentence" in refusal("export", "-m", str(folder), "--head", "tagger")
    assert "add --int8" in refusal("export", "-m", str(folder), "--evaluate", str(tmp_path / "x.csv"))
    assert "add --int8" in refusal("export", "-m", str(folder), "--no-vnni")
    assert not (folder / "onnx" / "model.onnx").exists()


def test_a_refused_export_leaves_nothing_new_and_nothing_changed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "config.json").write_text("mine")
    for target in ("there", "new", "deep/new"):
        assert "unknown output" in refusal("export", "-m", str(folder), "-o", str(tmp_path / target), "--head", "tail")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert [path.read_text() for path in (tmp_path / "there").iterdir()] == ["mine"]


def test_a_file_to_score_that_cannot_be_read_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.csv")
    refusal("export", "-m", str(folder), "-o", str(tmp_path / "new"), "--int8", "--evaluate", absent)
    assert list(tmp_path.iterdir()) == []
