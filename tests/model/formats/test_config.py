"""config.json in both families, and every way in which it can be wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model import preset
from bertkit.model.formats.config import ARCHITECTURES, architecture_of, config_json, parse_config, read_config
from tests.model.formats.peers import assert_one_line

# As published with Google's BERT-base, uncased
GOOGLE = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}


def test_googles_base() -> None:
    said = parse_config(GOOGLE)
    assert said.encoder == preset("base").with_heads(())
    assert said.architecture is None
    assert said.tied_decoder


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gelu", "gelu"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("relu", "relu"),
        ("tanh", "tanh"),
        ("silu", "silu"),
        ("swish", "silu"),
    ],
)
def test_activations(theirs: str, ours: str) -> None:
    assert parse_config(GOOGLE | {"hidden_act": theirs}).encoder.activation == ours


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"hidden_act": "mish"}, ["hidden_act", "mish"]),
        ({"hidden_act": None}, ["hidden_act"]),
        ({"model_type": "roberta"}, ["roberta", "BERT only"]),
        ({"model_type": "distilbert"}, ["distilbert", "BERT only"]),
        ({"position_embedding_type": "relative_key"}, ["relative_key", "absolute"]),
        ({"is_decoder": True, "add_cross_attention": True}, ["add_cross_attention", "another encoder"]),
        ({"embedding_size": 128}, ["factorised", "128", "plain BERT"]),
        ({"hidden_size": "768"}, ["hidden_size", '"768"', "whole number"]),
        ({"hidden_size": True}, ["hidden_size"]),
        ({"hidden_size": 768.5}, ["hidden_size"]),
        ({"hidden_size": 770}, ["hidden_size", "heads"]),
        ({"num_hidden_layers": 0}, ["num_layers"]),
        ({"vocab_size": -1}, ["vocab_size"]),
        ({"hidden_dropout_prob": "a lot"}, ["hidden_dropout_prob"]),
        ({"hidden_dropout_prob": 1.5}, ["hidden_dropout"]),
        ({"id2label": ["a", "b"]}, ["id2label"]),
        ({"id2label": {"1": "a"}}, ["id2label"]),
        ({"problem_type": "guessing"}, ["problem_type", "guessing"]),
    ],
)
def test_refusals(change: dict[str, Any], parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOGLE | change))
    with pytest.raises(BertkitError) as caught:
        read_config(path)
    assert_one_line(caught.value, str(path), *parts)


@pytest.mark.parametrize(
    "key", ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
)
def test_missing_key(key: str, tmp_path: Path) -> None:
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps({name: value for name, value in GOOGLE.items() if name != key}))
    with pytest.raises(BertkitError) as caught:
        read_config(path)
    assert_one_line(caught.value, str(path), f"{key} is missing")


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": 1,}', b"\xff\xfe\x00", b"null", b"[" * 100_000])
def test_broken_json(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(BertkitError) as caught:
        read_config(path)
    assert_one_line(caught.value, str(path))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_written_config_is_read_back(architecture: str) -> None:
    heads = ARCHITECTURES[architecture]
    labels = ("a", "b", "c") if {"classifier", "tagger"} & set(heads) else ()
    config = preset("tiny", activation="gelu_tanh", classifier_dropout=0.2).with_heads(heads, labels=labels)
    said = parse_config(json.loads(json.dumps(config_json(config, torch.float16))))
    assert said.architecture == architecture == architecture_of(config)
    assert said.labels == labels
    assert said.encoder == config.with_heads((), labels=())


@pytest.mark.parametrize(
    ("heads", "architecture"),
    [
        ((), "BertModel"),
        (("pooler", "mlm"), "BertForMaskedLM"),
        (("pooler", "tagger"), "BertForTokenClassification"),
        (("pooler", "mlm", "nsp", "classifier"), "BertForSequenceClassification"),
        (("pooler", "mlm", "nsp", "span"), "BertForQuestionAnswering"),
    ],
)
def test_nearest_architecture(heads: tuple[Any, ...], architecture: str) -> None:
    assert architecture_of(preset("tiny", heads=heads, labels=("a", "b"))) == architecture
