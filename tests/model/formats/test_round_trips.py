"""Every layout into every other, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.model.formats import load_model, save_model
from bertkit.model.formats.tf_bundle import open_bundle
from tests.model.formats.peers import HEADS, assert_same, make_model

LAYOUTS = ("safetensors", "sharded", "bin", "tf1")


@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_between_all_layouts(first: Any, second: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    model = make_model("pooler", "mlm", "nsp", "span", activation="gelu_tanh", hidden_dropout=0.2).to(dtype)
    save_model(model, tmp_path / "first", layout=first, max_shard_bytes=9_000)
    middle, _ = load_model(tmp_path / "first", dtype=None)
    save_model(middle, tmp_path / "second", layout=second, max_shard_bytes=50_000)
    assert_same(load_model(tmp_path / "second", dtype=None)[0], model)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("heads", [*HEADS.values(), ()])
def test_every_head(heads: tuple[Any, ...], layout: Any, tmp_path: Path) -> None:
    model = make_model(*heads, classifier_dropout=0.3)
    save_model(model, tmp_path, layout=layout)
    assert_same(load_model(tmp_path)[0], model)


@pytest.mark.parametrize("layout", ["safetensors", "sharded", "bin"])
def test_untied_decoder(layout: Any, tmp_path: Path) -> None:
    model = make_model("mlm", tied_decoder=False)
    save_model(model, tmp_path, layout=layout)
    assert_same(load_model(tmp_path)[0], model)


@pytest.mark.parametrize("problem", ["single_label", "multi_label", "regression"])
def test_problems(problem: str, tmp_path: Path) -> None:
    model = make_model(
        "pooler", "classifier", problem=problem, labels=("score",) if problem == "regression" else ("a", "b")
    )
    save_model(model, tmp_path)
    assert_same(load_model(tmp_path)[0], model)


def test_saving_in_another_dtype(tmp_path: Path) -> None:
    model = make_model("mlm")
    save_model(model, tmp_path, dtype=torch.bfloat16)
    assert_same(load_model(tmp_path, dtype=None)[0], model.to(torch.bfloat16))


def test_google_layout_has_googles_names_and_orientation(tmp_path: Path) -> None:
    model = make_model("pooler", "mlm", "nsp")
    files = save_model(model, tmp_path, layout="tf1")
    assert [path.name for path in files] == [
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "bert_config.json",
    ]
    bundle = open_bundle(tmp_path / "bert_model.ckpt")
    shapes = {name: entry.shape for name, entry in bundle.entries.items()}
    assert len(shapes) == 5 + 2 * 16 + 2 + 5 + 2
    assert shapes["bert/encoder/layer_1/intermediate/dense/kernel"] == (32, 64)
    assert shapes["cls/seq_relationship/output_weights"] == (2, 32)
    assert shapes["cls/predictions/output_bias"] == (90,)
    key = bundle.read("bert/encoder/layer_0/attention/self/key/kernel")
    assert torch.equal(key.T, model.state_dict()["encoder.layers.0.qkv.weight"][32:64])
    norm = bundle.read("bert/embeddings/LayerNorm/gamma")
    assert torch.equal(norm, model.state_dict()["encoder.embeddings.norm.weight"])


def test_the_model_owns_its_memory(tmp_path: Path) -> None:
    model = make_model("pooler")
    save_model(model, tmp_path)
    loaded, _ = load_model(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\0" * path.stat().st_size)
    assert_same(loaded, model)
