"""The bidirectional Transformer encoder of section 3 of the paper, on packed tokens.

In: a PackedBatch of T tokens. Out: one vector T_i for every token, [T, D], from the last layer or from all.
Post-LayerNorm as in the original: x = norm(x + sublayer(x)). Dimensions: T tokens, D hidden, H heads, E = D / H,
R rows asked for.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.model.attention import Attention, Backend, prepare
from bertkit.model.config import BertConfig
from bertkit.model.fast_inference import Eight, narrow_layers, takes_fast_inference, try_fast_forward
from bertkit.model.linear import Linear
from bertkit.model.packed import PackedBatch

ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "tanh": torch.tanh,
    "silu": F.silu,
}


class Embeddings(nn.Module):
    """Token + segment + position, then LayerNorm (figure 2 of the paper)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocab_size, config.hidden_size)
        self.segment = nn.Embedding(config.num_segments, config.hidden_size)
        self.position = nn.Embedding(config.max_positions, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, batch: PackedBatch) -> Tensor:
        summed = self.token(batch.token_ids) + self.segment(batch.segment_ids) + self.position(batch.position_ids)
        embedded: Tensor = self.dropout(self.norm(summed))
        return embedded


class Layer(nn.Module):
    """Self-attention and feed-forward, each with its residual and LayerNorm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.num_heads = config.num_heads
        self.attention_dropout = config.attention_dropout
        self.activation = ACTIVATION_FUNCTIONS[config.activation]
        self.qkv = Linear(hidden, 3 * hidden)  # query, key and value in one product
        self.attention_output = Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.up = Linear(hidden, config.intermediate_size)
        self.down = Linear(config.intermediate_size, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden_TD: Tensor, attention: Attention, rows_R: Tensor | None = None) -> Tensor:
        """One layer; with rows, only those rows go on after attention: [R, D]."""
        qkv_T3HE = self.qkv(hidden_TD).unflatten(-1, (3, self.num_heads, -1))
        mixed_TD = attention(qkv_T3HE, self.attention_dropout if self.training else 0.0).flatten(1)
        if rows_R is not None:
            hidden_TD, mixed_TD = hidden_TD[rows_R], mixed_TD[rows_R]
        hidden_TD = self.attention_norm(hidden_TD + self.dropout(self.attention_output(mixed_TD)))
        expanded = self.activation(self.up(hidden_TD))
        output: Tensor = self.output_norm(hidden_TD + self.dropout(self.down(expanded)))
        return output


class Encoder(nn.Module):
    """Embeddings and the stack of layers."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.is_causal = config.is_causal
        self.eights: list[Eight] | None = None  # set by `use_eight_bits`

    def forward(self, batch: PackedBatch, *, rows: Tensor | None = None, backend: Backend = "auto") -> Tensor:
        """The last layer's vectors, [T, D], or [R, D] for the rows asked for.

        Nothing but those rows is read after the last attention, so the rest of the last layer is not computed.
        """
        if backend == "auto" and takes_fast_inference(self, batch):
            made = try_fast_forward(self, batch, rows)
            if made is not None:
                return made
        hidden = self.embeddings(batch)
        attention = prepare(batch, hidden.dtype, backend, is_causal=self.is_causal)
        *lower, last = self.layers
        for layer in lower:
            hidden = layer(hidden, attention)
        output: Tensor = last(hidden, attention, rows)
        return output

    def use_eight_bits(self, factors: Mapping[str, Tensor] | None = None) -> None:
        """From now on, large batches are computed with rows of eight bits; the weights must stay as they are.

        factors: what input channels of "0.qkv", "0.up" and so on are divided by, so that large ones leave steps to the others.
        """
        self.eights = narrow_layers(self, factors or {})

    def all_layers(self, batch: PackedBatch, attention: Attention | None = None) -> list[Tensor]:
        """The embedding output and then every layer's, num_layers + 1 tensors of [T, D]."""
        states = [self.embeddings(batch)]
        attention = attention or prepare(batch, states[0].dtype, is_causal=self.is_causal)
        for layer in self.layers:
            states.append(layer(states[-1], attention))
        return states
