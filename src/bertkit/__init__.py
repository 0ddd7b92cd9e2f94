"""BERT, whole: from raw text to a served model.

    import bertkit
    bert = bertkit.load("path/to/checkpoint")
    bert.fill_mask("The man went to the [MASK].")

Names are loaded when first used, so that `import bertkit` and `bertkit --help` do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bertkit.errors import BertkitError, LongTextError, LongTextWarning

if TYPE_CHECKING:
    from bertkit.inference.bert import Bert
    from bertkit.inference.loading import convert, load
    from bertkit.model import BertConfig, BertModel, preset
    from bertkit.tokenizer import Tokenizer
    from bertkit.training.finetuning.finetune import finetune
    from bertkit.training.vectors.tune import tune_vectors

__version__ = "0.1.0"

_HOMES = {
    "Bert": "bertkit.inference.bert",
    "load": "bertkit.inference.loading",
    "convert": "bertkit.inference.loading",
    "BertConfig": "bertkit.model",
    "BertModel": "bertkit.model",
    "preset": "bertkit.model",
    "Tokenizer": "bertkit.tokenizer",
    "finetune": "bertkit.training.finetuning.finetune",
    "tune_vectors": "bertkit.training.vectors.tune",
}

__all__ = [
    "Bert",
    "BertConfig",
    "BertModel",
    "BertkitError",
    "LongTextError",
    "LongTextWarning",
    "Tokenizer",
    "convert",
    "finetune",
    "load",
    "preset",
    "tune_vectors",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertkit' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
