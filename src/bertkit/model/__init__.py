"""The encoder and its heads over packed batches. Knows nothing of text or training."""

from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig, num_parameters, preset
from bertkit.model.packed import PackedBatch, pack

__all__ = ["BertConfig", "BertModel", "PackedBatch", "num_parameters", "pack", "preset"]
