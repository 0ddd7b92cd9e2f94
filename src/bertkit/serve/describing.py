"""What the server must know of a loaded model: which routes it can answer, its limits, its names. Plain JSON."""

from pathlib import Path
from typing import Any

from bertkit.inference.batching import default_max_tokens
from bertkit.inference.bert import Bert
from bertkit.inference.classification import limit_of
from bertkit.model.formats import resolve

HEAD_OF = {"predict": "classifier", "fill_mask": "mlm", "next_sentence": "nsp", "answer": "span", "entities": "tagger"}
# ONNX Runtime runs texts of one length together: more texts, fuller runs. Two thousand tokens take a tenth of a second.
SESSION_TOKENS = 2048
ALWAYS = ("embed", "embed_all", "words", "attention")


def describe(bert: Bert, source: str | None) -> dict[str, Any]:
    """The facts of one model."""
    config, style = bert.config, bert.embed_options()
    own = limit_of(bert.model, bert.stored, None)
    positions = config.max_positions
    return {
        "folder": None if source is None else _folder(source),
        "can": [*ALWAYS, *(kind for kind, head in HEAD_OF.items() if head in config.heads)],
        "takes_pairs": config.num_segments > 1,
        "labels": list(config.labels),
        "hidden_size": config.hidden_size,
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "max_positions": positions,
        "embed_limit": min(positions, style.max_length or positions),
        "task_limit": own.max_length,
        "task_long": own.long,
        "pooling": style.pooling,
        "dtype": str(bert.model.encoder.embeddings.token.weight.dtype).removeprefix("torch."),
        "device": str(bert.device),
        "engine": bert.engine,
        "batch_tokens": SESSION_TOKENS if bert.engine != "torch" else default_max_tokens(bert.device),
    }


def _folder(source: str) -> str:
    path = Path(resolve(source))
    return str(path if path.is_dir() else path.parent)
