"""The sample text that ships with bertkit: short everyday documents, one sentence a line, a blank line between."""

from importlib.resources import files


def sample_documents() -> list[list[str]]:
    """The documents, each a list of sentences in order."""
    text = (files("bertkit") / "samples" / "everyday.txt").read_text(encoding="utf-8")
    return [block.splitlines() for block in text.strip().split("\n\n")]
