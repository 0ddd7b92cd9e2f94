"""Dropout of a model that is there already: fine-tuning may want another than pre-training had."""

from dataclasses import replace
from typing import cast

from torch import nn

from bertkit.model.bert import BertModel
from bertkit.model.encoder import Layer


def set_dropout(model: BertModel, rate: float) -> None:
    """The same rate everywhere: embeddings, attention, sublayers and the head."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
    for layer in model.encoder.layers:
        cast(Layer, layer).attention_dropout = rate
    model.config = replace(model.config, hidden_dropout=rate, attention_dropout=rate, classifier_dropout=None)
