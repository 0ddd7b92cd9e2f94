"""Models of our own that come with bertkit: a name in, the folder inside the package out. No network, no torch.

Each folder is a checkpoint like any other, with its card in README.md. `python -m bench.ship` makes them.
"""

from pathlib import Path

HERE = Path(__file__).parent
# In the order in which people meet them; the line says what the model is for.
MODELS = {
    "small-en": "English encoder with MLM and NSP heads: blanks, vectors, and what to fine-tune from",
    "sentiment-en": "is an English text positive or negative",
    "entities-en": "persons, places and organisations in English text",
    "answers-en": "the words of an English text that answer a question",
}


def folder_of(name: str) -> Path:
    """Where the bundled model of this name lies, or would lie."""
    return HERE / name


def is_here(name: str) -> bool:
    """Whether this is a bundled model's name, and its files are here."""
    return name in MODELS and (folder_of(name) / "config.json").is_file()


def size_of(name: str) -> int:
    """Bytes of its files."""
    return sum(path.stat().st_size for path in folder_of(name).rglob("*") if path.is_file())
