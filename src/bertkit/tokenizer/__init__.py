"""WordPiece: text to token ids with character offsets, and back. Knows nothing of torch."""

from bertkit.tokenizer.casing import CasingWarning
from bertkit.tokenizer.encoding import Encoding, SpecialTokens, Window
from bertkit.tokenizer.fitting import LongPolicy
from bertkit.tokenizer.report import VocabularyReport, measure_vocabulary
from bertkit.tokenizer.train import train_vocabulary
from bertkit.tokenizer.wordpiece import Tokenizer

__all__ = [
    "CasingWarning",
    "Encoding",
    "LongPolicy",
    "SpecialTokens",
    "Tokenizer",
    "VocabularyReport",
    "Window",
    "measure_vocabulary",
    "train_vocabulary",
]
