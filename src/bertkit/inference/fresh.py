"""A BERT that knows nothing yet: an untrained tiny model and a vocabulary learned from the sample text."""

from typing import Any

import torch

from bertkit.inference.bert import Bert
from bertkit.model import BertModel, preset
from bertkit.text.samples import sample_documents
from bertkit.tokenizer import train_vocabulary

VOCABULARY = 2000


def untrained(seed: int, **changes: Any) -> Bert:
    """A tiny model with random weights, its config changed as asked; its probabilities are near uniform."""
    lines = [sentence for document in sample_documents() for sentence in document]
    tokenizer = train_vocabulary(lines, size=VOCABULARY, lowercase=True)
    torch.manual_seed(seed)
    return Bert(BertModel(preset("tiny", vocab_size=tokenizer.vocab_size, **changes)), tokenizer)
