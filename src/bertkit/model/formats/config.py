"""config.json (Hugging Face) and bert_config.json (Google) <-> BertConfig.

What the file says of the encoder becomes a BertConfig without heads; which heads there are, the tensors decide later,
helped by the hints that StoredConfig keeps. What bertkit cannot run faithfully is refused with its reason.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.model.config import BertConfig, Head, Problem

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "tanh": "tanh",
    "silu": "silu",
    "swish": "silu",
}
WRITTEN_ACTIVATION = {"gelu_tanh": "gelu_pytorch_tanh"}  # the others keep their names
# The heads that each class of transformers has; the first that holds all of a model's heads is written.
ARCHITECTURES: dict[str, tuple[Head, ...]] = {
    "BertModel": ("pooler",),
    "BertForMaskedLM": ("mlm",),
    "BertForTokenClassification": ("tagger",),
    "BertForQuestionAnswering": ("span",),
    "BertForNextSentencePrediction": ("pooler", "nsp"),
    "BertForSequenceClassification": ("pooler", "classifier"),
    "BertForPreTraining": ("pooler", "mlm", "nsp"),
}
PROBLEMS: dict[str, Problem] = {
    "single_label_classification": "single_label",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}
# native field: foreign key; the first five decide what the numbers mean, so they have no default
REQUIRED = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
}
COUNTS = {**REQUIRED, "max_positions": "max_position_embeddings", "num_segments": "type_vocab_size"}
RATES = {
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "classifier_dropout": "classifier_dropout",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_eps",
}


@dataclass(frozen=True)
class StoredConfig:
    """What a config file says: the encoder, and hints about heads."""

    encoder: BertConfig  # without heads
    architecture: str | None
    labels: tuple[str, ...]  # () where the file names none
    problem: Problem | None
    tied_decoder: bool


def read_config(path: Path) -> StoredConfig:
    """The config in this file."""
    data = read_json_object(path)
    try:
        return parse_config(data)
    except BertkitError as error:
        raise BertkitError(f"{path}: {error}") from None


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON file whose top level is an object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BertkitError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise BertkitError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BertkitError(f"{path} holds a {type(data).__name__}, not a JSON object")
    return data


def parse_config(data: Mapping[str, Any]) -> StoredConfig:
    """The config that this JSON object is."""
    _refuse_other_models(data)
    for key in REQUIRED.values():
        if key not in data:
            raise BertkitError(f"{key} is missing; a BERT config has {', '.join(REQUIRED.values())}")
    fields: dict[str, Any] = {field: _number(data, key, int) for field, key in COUNTS.items() if key in data}
    fields |= {field: _number(data, key, float) for field, key in RATES.items() if data.get(key) is not None}
    if data.get("pad_token_id") is not None:
        fields["pad_token_id"] = _number(data, "pad_token_id", int)
    fields |= {"activation": _activation(data.get("hidden_act", "gelu")), "is_causal": bool(data.get("is_decoder"))}
    encoder = BertConfig(**fields, heads=())
    return StoredConfig(
        encoder=encoder,
        architecture=_architecture(data.get("architectures")),
        labels=_labels(data.get("id2label")),
        problem=_problem(data.get("problem_type")),
        tied_decoder=data.get("tie_word_embeddings", True) is not False,
    )


def _refuse_other_models(data: Mapping[str, Any]) -> None:
    kind = data.get("model_type", "bert")
    if kind != "bert":
        raise BertkitError(f"this is a {kind} model, and bertkit reads BERT only (model_type must be bert)")
    positions = data.get("position_embedding_type") or "absolute"
    if positions != "absolute":
        raise BertkitError(f"its positions are {positions!r}; bertkit has BERT's learned absolute ones only")
    if data.get("add_cross_attention"):
        raise BertkitError(
            "add_cross_attention is true: it reads another encoder's output, which no BERT of bertkit does"
        )
    width = data.get("embedding_size")
    if width is not None and width != data.get("hidden_size"):
        raise BertkitError(
            f"its embeddings are factorised ({width} wide, projected to {data.get('hidden_size')}); bertkit reads plain BERT"
        )


def _number(data: Mapping[str, Any], key: str, kind: type[int] | type[float]) -> int | float:
    value = data[key]
    allowed = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        raise BertkitError(f"{key} is {json.dumps(value)[:80]}; it must be {'a whole' if kind is int else 'a'} number")
    if value < 0:
        raise BertkitError(f"{key} is {value}; it must not be negative")
    return kind(value)


def _activation(name: object) -> str:
    if not isinstance(name, str) or name not in ACTIVATION_NAMES:
        raise BertkitError(f"hidden_act is {name!r}; bertkit knows {', '.join(ACTIVATION_NAMES)}")
    return ACTIVATION_NAMES[name]


def _architecture(names: object) -> str | None:
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def _labels(id2label: object) -> tuple[str, ...]:
    if id2label is None:
        return ()
    if not isinstance(id2label, dict) or set(id2label) != {str(index) for index in range(len(id2label))}:
        raise BertkitError('id2label must name the labels by number: {"0": "no", "1": "yes"}')
    return tuple(str(id2label[str(index)]) for index in range(len(id2label)))


def _problem(name: object) -> Problem | None:
    if name is None:
        return None
    if not isinstance(name, str) or name not in PROBLEMS:
        raise BertkitError(f"problem_type is {name!r}; it is one of {', '.join(PROBLEMS)}")
    return PROBLEMS[name]


def architecture_of(config: BertConfig) -> str:
    """The class of transformers that loads such a model: the one with its heads, or the nearest."""
    heads = set(config.heads)
    for name, known in ARCHITECTURES.items():
        if set(known) == heads:
            return name
    # No class has these heads: the one that has most of them ignores the rest. Task heads before pre-training's.
    ranked = ("classifier", "tagger", "span", "nsp", "mlm", "pooler")
    first = next((head for head in ranked if head in heads), "pooler")
    fitting = [name for name, known in ARCHITECTURES.items() if first in known and set(known) <= heads]
    return fitting[-1] if fitting else "BertModel"


def config_json(config: BertConfig, dtype: torch.dtype) -> dict[str, Any]:
    """The config.json of this model; Google's code reads it too and passes over the keys that it does not know."""
    data: dict[str, Any] = {"architectures": [architecture_of(config)], "model_type": "bert"}
    data |= {key: getattr(config, field) for field, key in {**COUNTS, **RATES}.items()}
    data |= {
        "hidden_act": WRITTEN_ACTIVATION.get(config.activation, config.activation),
        "pad_token_id": config.pad_token_id,
        "tie_word_embeddings": config.tied_decoder,
        "dtype": str(dtype).removeprefix("torch."),
    }
    if config.is_causal:
        data["is_decoder"] = True  # transformers then has a causal mask
    if {"classifier", "tagger"} & set(config.heads):
        data["id2label"] = {str(index): label for index, label in enumerate(config.labels)}
        data["label2id"] = {label: index for index, label in enumerate(config.labels)}
    if "classifier" in config.heads:
        data["problem_type"] = next(name for name, problem in PROBLEMS.items() if problem == config.problem)
    return dict(sorted(data.items()))
