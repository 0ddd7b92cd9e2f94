"""Floating point operations of a training step: the products that the model really computes, forward and backward.

The last layer's output projection and feed-forward count on the masked and [CLS] rows alone, as they are computed.
Attention's share is counted with the step's mean length. Dimensions: T tokens, M masked, N sequences.
"""

from bertkit.model.config import BertConfig
from bertkit.training.feeds import BatchCounts

BACKWARD = 2  # twice the forward's products


def step_flops(config: BertConfig, counts: BatchCounts, max_length: int) -> float:
    """Of one global step with these counts."""
    hidden, inter, layers = config.hidden_size, config.intermediate_size, config.num_layers
    tokens, masked, pairs = counts.num_tokens, counts.num_masked, counts.num_pairs
    length = min(max_length, tokens / pairs) if pairs else max_length
    after = hidden * hidden + 2 * hidden * inter  # what comes after attention, weights of one layer
    products: float = layers * tokens * 3 * hidden * hidden + (layers - 1) * tokens * after + (masked + pairs) * after
    products += layers * 2 * hidden * tokens * length  # scores and mixing
    if "mlm" in config.heads:
        products += masked * hidden * (hidden + config.vocab_size)
    if "nsp" in config.heads:
        products += pairs * hidden * (hidden + 2)
    return 2.0 * products * (1 + BACKWARD)
