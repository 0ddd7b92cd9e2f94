"""What transformers writes, bertkit reads with the same numbers, and the other way round."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertkit.model import pack
from bertkit.model.formats import load_model, save_model
from tests.model.formats.peers import (
    HEADS,
    SIZES,
    distance,
    labels_of,
    load_peer,
    make_batch,
    make_model,
    make_peer,
    our_outputs,
    peer_outputs,
)

TOLERANCE = 1e-5


@pytest.mark.parametrize("architecture", HEADS)
def test_reads_what_transformers_writes(architecture: str, tmp_path: Path) -> None:
    peer = make_peer(architecture)
    peer.save_pretrained(tmp_path)
    model, report = load_model(tmp_path)
    assert model.config.heads == HEADS[architecture] == report.heads
    assert model.config.labels == labels_of(architecture)
    assert report.new == report.ignored == ()
    assert not model.training
    assert all(parameter.requires_grad and not parameter.is_meta for parameter in model.parameters())
    batch = make_batch()
    assert distance(our_outputs(model, batch), peer_outputs(peer, batch)) < TOLERANCE


@pytest.mark.parametrize("layout", ["safetensors", "sharded", "bin"])
@pytest.mark.parametrize("architecture", HEADS)
def test_transformers_reads_what_bertkit_writes(architecture: str, layout: Any, tmp_path: Path) -> None:
    model = make_model(*HEADS[architecture])
    save_model(model, tmp_path, layout=layout, max_shard_bytes=20_000)
    peer = load_peer(architecture, tmp_path)
    assert tuple(peer.config.id2label.values()) == (labels_of(architecture) or ("LABEL_0", "LABEL_1"))
    batch = make_batch()
    assert distance(our_outputs(model, batch), peer_outputs(peer, batch)) < TOLERANCE


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", HEADS)
def test_names_and_shapes_are_those_that_transformers_writes(architecture: str, tied: bool, tmp_path: Path) -> None:
    make_peer(architecture, tie_word_embeddings=tied).save_pretrained(tmp_path / "theirs")
    model, _ = load_model(tmp_path / "theirs")
    save_model(model, tmp_path / "ours")
    theirs, ours = (load_file(tmp_path / folder / "model.safetensors") for folder in ("theirs", "ours"))
    assert {name: tensor.shape for name, tensor in ours.items()} == {name: t.shape for name, t in theirs.items()}
    written = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert written["architectures"] == [architecture]


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish"])
def test_activations(activation: str, tmp_path: Path) -> None:
    peer = make_peer("BertForPreTraining", hidden_act=activation, layer_norm_eps=1e-5)
    peer.save_pretrained(tmp_path / "theirs")
    model, _ = load_model(tmp_path / "theirs")
    save_model(model, tmp_path / "ours")
    batch = make_batch()
    assert distance(our_outputs(model, batch), peer_outputs(peer, batch)) < TOLERANCE
    again = load_peer("BertForPreTraining", tmp_path / "ours")
    assert distance(our_outputs(model, batch), peer_outputs(again, batch)) < TOLERANCE


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "BertForPreTraining"])
def test_untied_decoder(architecture: str, tmp_path: Path) -> None:
    peer = make_peer(architecture, tie_word_embeddings=False)
    peer.save_pretrained(tmp_path / "theirs")
    model, report = load_model(tmp_path / "theirs")
    assert not model.config.tied_decoder
    assert any("untied" in note for note in report.notes)
    save_model(model, tmp_path / "ours")
    again, batch = load_peer(architecture, tmp_path / "ours"), make_batch()
    for reference in (peer, again):
        assert distance(our_outputs(model, batch), peer_outputs(reference, batch)) < TOLERANCE


def rewrite(folder: Path, change: Any) -> None:
    """Change the tensors of a folder by a function of their dict."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


@pytest.mark.parametrize("stored", ["decoder equals embeddings", "decoder differs", "only decoder.bias"])
def test_stored_decoder_is_read_as_transformers_reads_it(stored: str, tmp_path: Path) -> None:
    make_peer("BertForMaskedLM").save_pretrained(tmp_path)
    head = "cls.predictions"

    def change(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if stored == "only decoder.bias":
            return {name.replace(f"{head}.bias", f"{head}.decoder.bias"): t for name, t in tensors.items()}
        shift = 0.0 if stored == "decoder equals embeddings" else 0.5
        decoder = tensors["bert.embeddings.word_embeddings.weight"] + shift
        bias = tensors[f"{head}.bias"] + shift
        return tensors | {f"{head}.decoder.weight": decoder, f"{head}.decoder.bias": bias}

    rewrite(tmp_path, change)
    model, _ = load_model(tmp_path)
    assert model.config.tied_decoder == (stored != "decoder differs")
    peer, batch = load_peer("BertForMaskedLM", tmp_path), make_batch()
    assert distance(our_outputs(model, batch), peer_outputs(peer, batch)) < TOLERANCE


def test_older_spellings(tmp_path: Path) -> None:
    peer = make_peer("BertModel")
    peer.save_pretrained(tmp_path)

    def change(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        older = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in tensors.items()
        }
        return older | {"embeddings.position_ids": torch.arange(40)[None]}

    rewrite(tmp_path, change)
    model, report = load_model(tmp_path)
    assert report.ignored == ("bert.embeddings.position_ids",)
    batch = make_batch()
    assert distance(our_outputs(model, batch), peer_outputs(peer, batch)) < TOLERANCE


def test_missing_pooler_is_no_pooler(tmp_path: Path) -> None:
    make_peer("BertModel").save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: {name: t for name, t in tensors.items() if not name.startswith("pooler.")})
    model, report = load_model(tmp_path)
    assert model.config.heads == ()
    assert "no pooler in this checkpoint" in report.notes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    peer = make_peer("BertForMaskedLM").to(dtype)
    peer.save_pretrained(tmp_path)
    kept, report = load_model(tmp_path, dtype=None)
    assert {parameter.dtype for parameter in kept.parameters()} == {dtype}
    assert report.dtypes == (str(dtype).removeprefix("torch."),)
    widened, _ = load_model(tmp_path)
    batch = make_batch()
    assert distance(our_outputs(widened, batch), peer_outputs(peer.float(), batch)) < TOLERANCE


def test_mixed_dtypes_become_the_one_that_holds_all(tmp_path: Path) -> None:
    make_peer("BertModel").save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: {name: t.half() if "dense" in name else t for name, t in tensors.items()})
    model, report = load_model(tmp_path, dtype=None)
    assert report.dtypes == ("float16", "float32")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_sentence_transformers_reads_what_bertkit_writes(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from transformers import BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", *(f"##{c}" for c in "abcdefghij")]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    model = make_model("pooler", vocab_size=len(words))
    save_model(model, tmp_path / "model")
    tokenizer = BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))
    assert len(tokenizer) == len(words)
    tokenizer.save_pretrained(tmp_path / "model")
    vectors = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(["abc d", "j"], convert_to_tensor=True)
    batch = pack([tokenizer("abc d")["input_ids"], tokenizer("j")["input_ids"]])
    ours = torch.stack([rows.mean(0) for rows in batch.split(our_outputs(model, batch)["hidden"])])
    assert (vectors - ours).abs().max().item() < TOLERANCE


def test_sizes_of_the_peer_are_those_of_the_model(tmp_path: Path) -> None:
    make_peer("BertModel", type_vocab_size=3, pad_token_id=1).save_pretrained(tmp_path)
    config = load_model(tmp_path)[0].config
    assert (config.num_segments, config.pad_token_id, config.max_positions) == (3, 1, SIZES["max_position_embeddings"])
