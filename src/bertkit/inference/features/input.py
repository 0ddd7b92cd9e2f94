"""Which examples a file holds, for features: lines of text, rows of a table, or sentences of words in columns."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bertkit.errors import BertkitError
from bertkit.tasks.features import Per
from bertkit.tasks.reading.conll import TagSource
from bertkit.tasks.reading.examples import TagExample, TextExample
from bertkit.tasks.reading.tables import TABLE_KINDS
from bertkit.tasks.reading.texts import TextOptions, TextSource
from bertkit.tasks.tagging.words import cut_text
from bertkit.text.files import inner_suffix
from bertkit.text.lines import read_texts
from bertkit.tokenizer import Tokenizer


@dataclass(frozen=True)
class FeatureInput:
    """Examples, read as they are asked for, and a line that says what was taken as what."""

    examples: Iterable[TextExample | TagExample]
    said: str


def open_examples(path: str, per: Per, tokenizer: Tokenizer, options: TextOptions | None = None) -> FeatureInput:
    """A .txt file (or -) has a text a line, a table has columns, and with per="word" any other file has a word a line."""
    suffix = inner_suffix(Path(path))
    if path == "-" or suffix in (".txt", ".text"):
        found: Iterable[TextExample] = (TextExample(text) for text in read_texts(path))
        said = f"{path}: a text a line"
    elif per == "word" and suffix not in TABLE_KINDS:
        source = TagSource(path)
        return FeatureInput(source, f"{path}: {source.guess}")
    else:
        table = TextSource(path, options or TextOptions(labelled=False))
        found, said = table, f"{path}: {table.guess}"
    if per == "text":
        return FeatureInput(found, said)
    return FeatureInput(_cut(found, tokenizer), f"{said}; words as bertkit cuts them")


def _cut(examples: Iterable[TextExample], tokenizer: Tokenizer) -> Iterator[TagExample]:
    for example in examples:
        if example.pair is not None:
            raise BertkitError("words are taken from single texts, and these are pairs; name the column, or per='text'")
        yield cut_text(example.text, tokenizer)
