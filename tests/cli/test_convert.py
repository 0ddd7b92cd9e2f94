"""`bertkit convert`: every layout into every other, nothing rounded, and others read what was written."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertkit.inference.bert import Bert
from bertkit.inference.loading import open_checkpoint
from tests.cli.running import refusal, refused, run, run_json, spawn

LAYOUTS = {
    "safetensors": "model.safetensors",
    "sharded": "model.safetensors.index.json",
    "bin": "pytorch_model.bin",
    "tf1": "bert_model.ckpt.index",
}
TEXTS = ["The dog sleeps.", "", "Ünïcödé 中文 😀", "unbelievableness [MASK] and [SEP]", "x" * 120]


def ids(bert: Bert) -> list[list[int]]:
    return [bert.tokenizer.encode(text).ids for text in TEXTS]


def assert_same(found: Bert, expected: Bert) -> None:
    first, second = found.model.state_dict(), expected.model.state_dict()
    assert list(first) == list(second)
    assert [name for name in first if first[name].dtype != second[name].dtype] == []
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    assert found.config == expected.config
    assert ids(found) == ids(expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_there_and_back_is_the_same_to_the_byte(layout: str, bert: Bert, folder: Path, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    shown, _ = run("convert", str(folder), str(there), "--to", layout)
    assert "read model.safetensors (safetensors, float32)" in shown
    assert f"written to {there} ({layout})" in shown
    assert (there / LAYOUTS[layout]).is_file()
    assert_same(open_checkpoint(there, dtype=None), bert)
    run("convert", str(there), str(back))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(files) >= {"model.safetensors", "config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name: path.read_bytes() for path in back.iterdir()} == files


def test_the_card_goes_along_and_none_is_overwritten(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "carded")
    (tmp_path / "carded" / "README.md").write_text("license: mit")
    run("convert", str(tmp_path / "carded"), str(tmp_path / "new"))
    assert (tmp_path / "new" / "README.md").read_text() == "license: mit"
    (tmp_path / "new" / "README.md").write_text("by hand")
    run("convert", str(tmp_path / "carded"), str(tmp_path / "new"))
    assert (tmp_path / "new" / "README.md").read_text() == "by hand"


def test_round_all_of_them(bert: Bert, folder: Path, tmp_path: Path) -> None:
    source = str(folder)
    for number, layout in enumerate(["tf1", "bin", "sharded", "tf1", "sharded", "bin", "safetensors"]):
        target = tmp_path / str(number)
        run("convert", source, str(target), "--to", layout)
        source = str(target / "bert_model.ckpt") if layout == "tf1" else str(target)
    assert_same(open_checkpoint(source, dtype=None), bert)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_another_dtype_is_rounded_once(layout: str, bert: Bert, folder: Path, tmp_path: Path) -> None:
    run("convert", str(folder), str(tmp_path), "--to", layout, "--dtype", "float16")
    found = open_checkpoint(tmp_path, dtype=None).model.state_dict()
    assert all(torch.equal(found[name], tensor.half()) for name, tensor in bert.model.state_dict().items())
    assert {tensor.dtype for tensor in found.values()} == {torch.float16}
    assert run_json("info", "-m", str(tmp_path))["dtype"] == "float16"


def test_json(folder: Path, tmp_path: Path) -> None:
    plain = run_json("convert", str(folder), str(tmp_path / "there"), "--to", "bin")
    assert plain["target"] == str(tmp_path / "there")
    assert plain["layout"] == "bin"
    assert plain["report"]["format"] == "safetensors"
    assert plain["report"]["heads"] == ["pooler", "mlm", "nsp"]


def test_a_path_is_one_line_however_narrow_the_terminal(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    target = tmp_path / "a name with spaces" / "and another folder below it"
    assert f"written to {target} (safetensors)\n" in run("convert", str(folder), str(target))[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "onnx"], "unknown layout 'onnx'; choose one of safetensors, sharded, bin, tf1"),
        (["--dtype", "int8"], "unknown dtype 'int8'; choose one of float32, float16, bfloat16"),
    ],
)
def test_what_is_not_known_writes_nothing(arguments: list[str], said: str, folder: Path, tmp_path: Path) -> None:
    assert said in refusal("convert", str(folder), str(tmp_path / "there"), *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", ["sharded", "bin", "tf1"])
def test_other_weights_in_the_target(layout: str, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "there"
    shutil.copytree(folder, target)
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    assert f"{target} already holds model.safetensors" in refusal("convert", str(folder), str(target), "--to", layout)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before


def test_a_target_that_cannot_be(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for target in (tmp_path / "file", tmp_path / "file" / "under"):
        assert f"{target} cannot be written" in refusal("convert", str(folder), str(target))
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_source_cut_short(layout: str, bert: Bert, tmp_path: Path) -> None:
    source = bert.save(tmp_path / "source", layout=layout)
    path = max(source.iterdir(), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert str(path.name) in refusal("convert", str(source), str(tmp_path / "there"))
    assert not (tmp_path / "there").exists()


class Hostile:
    """Unpickled without care, this makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.target),)


def test_a_pickle_that_wants_to_run_code(bert: Bert, tmp_path: Path) -> None:
    source, trap = bert.save(tmp_path / "source", layout="bin"), tmp_path / "executed"
    (source / "pytorch_model.bin").write_bytes(pickle.dumps({"bert.pooler.dense.bias": Hostile(trap)}))
    result = spawn("convert", str(source), str(tmp_path / "there"))
    assert "nothing was run" in refused(result.returncode, result.stderr.decode())
    assert result.stdout == b""
    assert not trap.exists()
    assert not (tmp_path / "there").exists()
    pickle.loads((source / "pytorch_model.bin").read_bytes())
    assert trap.exists(), "the trap does not work, so this test says nothing"


@pytest.fixture(scope="module")
def converted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Through Google's layout and back, to be read by others."""
    place = tmp_path_factory.mktemp("converted")
    run("convert", str(folder), str(place / "tf1"), "--to", "tf1")
    run("convert", str(place / "tf1"), str(place / "back"))
    return str(place / "back")


def test_transformers_reads_it(bert: Bert, converted: str) -> None:
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(converted), AutoModel.from_pretrained(converted).eval()
    assert tokenizer(TEXTS)["input_ids"] == ids(bert)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        hidden = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    assert np.abs(bert.embed(TEXTS) - ((hidden * mask).sum(1) / mask.sum(1)).numpy()).max() < 1e-5


def test_transformers_cuts_long_texts_where_the_model_ends(bert: Bert, converted: str) -> None:
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(converted).model_max_length == bert.config.max_positions


def test_sentence_transformers_reads_it(bert: Bert, converted: str) -> None:
    from sentence_transformers import SentenceTransformer

    reader = SentenceTransformer(converted, device="cpu")
    assert np.abs(bert.embed(TEXTS) - reader.encode(TEXTS)).max() < 1e-5
    assert len(reader.encode("the dog " * 100)) == bert.config.hidden_size
