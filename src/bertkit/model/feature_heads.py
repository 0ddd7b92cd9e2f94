"""Heads that are trained on the features of a frozen encoder (section 5.3 of the paper).

Texts: one linear layer, which with L2 is logistic regression. Words: the paper's two-layer, 768-dimensional BiLSTM
before the classification layer. Either may learn how to weigh layers that lie side by side in its features.
Dimensions: R rows, K stacked layers, D one layer's width, W = K D, C labels.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from bertkit.errors import BertkitError

HeadKind = Literal["logistic", "bilstm"]


@dataclass(frozen=True)
class HeadConfig:
    """The shape of a head."""

    kind: HeadKind
    labels: tuple[str, ...]
    width: int  # W
    num_stacked: int = 1  # K
    weighted: bool = False
    hidden_size: int = 768  # of the BiLSTM, each way
    num_layers: int = 2
    dropout: float = 0.3

    def __post_init__(self) -> None:
        if self.kind not in get_args(HeadKind):
            raise BertkitError(f"unknown head {self.kind!r}; choose one of {', '.join(get_args(HeadKind))}")
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise BertkitError(f"a head needs two labels or more, each with its own name; got {len(self.labels)}")
        if self.width < 1 or self.num_stacked < 1 or self.width % self.num_stacked:
            raise BertkitError(f"features of width {self.width} do not divide into {self.num_stacked} layers")
        if self.hidden_size < 1 or self.num_layers < 1 or not 0.0 <= self.dropout < 1.0:
            raise BertkitError("a head's hidden_size and num_layers must be at least 1, its dropout in 0 to below 1")

    @property
    def input_size(self) -> int:
        """The width of what the head's first layer reads."""
        return self.width // self.num_stacked if self.weighted else self.width


class Intake(nn.Module):
    """Features standardised as the training set's were, and stacked layers summed with learned weights if asked."""

    mean: Tensor
    scale: Tensor

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.num_stacked = config.num_stacked
        self.register_buffer("mean", torch.zeros(config.width))
        self.register_buffer("scale", torch.ones(config.width))
        self.layer_scores = nn.Parameter(torch.zeros(config.num_stacked)) if config.weighted else None
        self.factor = nn.Parameter(torch.ones(1)) if config.weighted else None

    @property
    def layer_weights(self) -> Tensor | None:
        """The share of each layer, [K], lowest layer first; None where there is nothing to weigh."""
        return None if self.layer_scores is None else torch.softmax(self.layer_scores, 0)

    def forward(self, features_RW: Tensor) -> Tensor:
        """[R, W], or [R, D] where layers are weighed."""
        standard = (features_RW.to(self.mean.dtype) - self.mean) * self.scale
        if self.layer_weights is None or self.factor is None:
            return standard
        stacked_RKD = standard.unflatten(-1, (self.num_stacked, -1))
        return self.factor * torch.einsum("rkd,k->rd", stacked_RKD, self.layer_weights)


class LogisticHead(nn.Module):
    """A score a label, linear in the features."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        self.intake = Intake(config)
        self.classifier = nn.Linear(config.input_size, len(config.labels))
        nn.init.zeros_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, features_RW: Tensor, lengths_N: Tensor | None = None) -> Tensor:
        """Logits [R, C]; every row stands for itself."""
        logits: Tensor = self.classifier(self.intake(features_RW))
        return logits


class BiLstmHead(nn.Module):
    """A score a label for every word, from the words on both sides."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        self.intake = Intake(config)
        between = config.dropout if config.num_layers > 1 else 0.0
        self.lstm = nn.LSTM(
            config.input_size,
            config.hidden_size,
            config.num_layers,
            batch_first=True,
            bidirectional=True,
            dropout=between,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(2 * config.hidden_size, len(config.labels))

    def forward(self, features_RW: Tensor, lengths_N: Tensor) -> Tensor:
        """Logits [R, C] of N sentences that lie end to end; their lengths are on the CPU."""
        words = torch.split(self.dropout(self.intake(features_RW)), lengths_N.tolist())
        padded = pad_sequence(list(words), batch_first=True)
        packed = pack_padded_sequence(padded, lengths_N, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        inside = torch.arange(states.shape[1]) < lengths_N[:, None]  # [N, longest]
        logits: Tensor = self.classifier(self.dropout(states[inside.to(states.device)]))
        return logits


Head = LogisticHead | BiLstmHead


def make_head(config: HeadConfig) -> Head:
    """A head of this shape, untrained."""
    return LogisticHead(config) if config.kind == "logistic" else BiLstmHead(config)
