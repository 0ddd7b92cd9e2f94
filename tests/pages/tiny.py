"""A two-layer model and its tokenizer for tests of pages, explanations and commands."""

import torch

from bertkit.inference.bert import Bert
from bertkit.model import BertModel, preset
from bertkit.model.config import PRETRAINING, Head
from bertkit.tokenizer import Tokenizer

WORDS = [
    "my",
    "dog",
    "is",
    "cute",
    "he",
    "likes",
    "playing",
    "fun",
    "fair",
    "in",
    "new",
    "york",
    "city",
    "this",
    "summer",
    "didn",
    "'",
    "t",
    "receive",
    "treatment",
    "tom",
    "deserves",
    "judgement",
    "bank",
    "the",
    "river",
    "un",
]
PIECES = ("##bia", "##sed", "##s", "<", ">", "/", "=", "(", ")", "&", "$", "script", "img", "one", "##rro", "##r", "x")


def tiny_bert(heads: tuple[Head, ...] = PRETRAINING, seed: int = 0, **more: int) -> Bert:
    """Weights large enough that predictions differ visibly."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *PIECES]
    tokenizer = Tokenizer.from_vocab(tokens, lowercase=True)
    torch.manual_seed(seed)
    sizes = {
        "hidden_size": 16,
        "num_heads": 2,
        "intermediate_size": 32,
        "max_positions": 32,
        "initializer_range": 0.5,
        **more,
    }
    return Bert(BertModel(preset("tiny", vocab_size=len(tokens), heads=heads, **sizes)), tokenizer)
