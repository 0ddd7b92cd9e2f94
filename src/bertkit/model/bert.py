"""A BERT: the encoder and the heads on top of it (sections 3.1 and 3.2 of the paper).

Each head is a function of encoder rows: the MLM and span heads and the tagger read token rows, NSP and the
classifier read [CLS] rows. A head that the config does not name does not exist.
"""

import torch
from torch import Tensor, nn

from bertkit.errors import BertkitError
from bertkit.model.config import BertConfig
from bertkit.model.encoder import ACTIVATION_FUNCTIONS, Encoder
from bertkit.model.linear import Linear, product
from bertkit.model.packed import PackedBatch


class Pooler(Linear):
    """[CLS] through a dense layer and tanh: the vector C that the NSP head and the classifier read."""

    def forward(self, hidden_ND: Tensor) -> Tensor:
        return torch.tanh(super().forward(hidden_ND))


class MaskedTokenHead(nn.Module):
    """Dense, activation, LayerNorm, then the (tied) token embeddings as output weights, and a bias a token."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.activation = ACTIVATION_FUNCTIONS[config.activation]
        self.transform = Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.decoder = None if config.tied_decoder else Linear(hidden, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_MD: Tensor, token_embeddings_VD: Tensor) -> Tensor:
        """Logits over the vocabulary: [M, V]."""
        transformed = self.norm(self.activation(self.transform(hidden_MD)))
        weight = token_embeddings_VD if self.decoder is None else self.decoder.weight
        return product(transformed, weight, self.bias)


class BertModel(nn.Module):
    """An encoder with the heads that its config names, freshly initialised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        hidden, has = config.hidden_size, set(config.heads)
        self.encoder = Encoder(config)
        self.pooler = Pooler(hidden, hidden) if "pooler" in has else None
        self.mlm = MaskedTokenHead(config) if "mlm" in has else None
        self.nsp = Linear(hidden, 2) if "nsp" in has else None
        self.classifier = Linear(hidden, len(config.labels)) if "classifier" in has else None
        self.tagger = Linear(hidden, len(config.labels)) if "tagger" in has else None
        self.span = Linear(hidden, 2) if "span" in has else None
        rate = config.hidden_dropout if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(rate)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal weights, zero biases, LayerNorms at the identity."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.initializer_range)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.encoder.embeddings.token.weight.device

    def summary_rows(self, batch: PackedBatch, cls_rows: Tensor | None = None) -> Tensor:
        """The rows that speak for whole sequences: the [CLS] rows given, or all.

        In a causal model [CLS] sees itself alone, so the last [SEP], which sees everything, takes its place.
        """
        rows = batch.cls_rows if cls_rows is None else cls_rows
        return batch.last_rows_of(rows) if self.config.is_causal else rows

    def pooled(self, cls_ND: Tensor) -> Tensor:
        """C, the pooled [CLS] vectors: [N, D]."""
        return _existing(self.pooler, "pooler")(cls_ND)

    def mlm_logits(self, hidden_MD: Tensor) -> Tensor:
        """A score for every vocabulary entry at every row: [M, V]."""
        return _existing(self.mlm, "mlm")(hidden_MD, self.encoder.embeddings.token.weight)

    def nsp_logits(self, cls_ND: Tensor) -> Tensor:
        """Scores of (IsNext, NotNext): [N, 2]."""
        return _existing(self.nsp, "nsp")(self.pooled(cls_ND))

    def class_logits(self, cls_ND: Tensor) -> Tensor:
        """Scores of the labels of each sequence (one column for regression): [N, C]."""
        return _existing(self.classifier, "classifier")(self.dropout(self.pooled(cls_ND)))

    def tag_logits(self, hidden_TD: Tensor) -> Tensor:
        """Scores of the labels of each token: [T, C]."""
        return _existing(self.tagger, "tagger")(self.dropout(hidden_TD))

    def span_logits(self, hidden_TD: Tensor) -> Tensor:
        """Products of each token with the start vector S and the end vector E: [T, 2]."""
        return _existing(self.span, "span")(hidden_TD)


class _Callable(nn.Module):
    def __call__(self, *args: Tensor) -> Tensor: ...  # type: ignore[empty-body]


def _existing(head: nn.Module | None, name: str) -> "_Callable":
    if head is None:
        raise BertkitError(f"this checkpoint has no {name} head; load one that has, or train it")
    return head  # type: ignore[return-value]
