"""Named entities out of texts: words, legal tags, and entities with their characters, by a checkpoint with a tagger.

In: plain texts, or sentences already cut into words. Out: one TaggedText each, in the order given. Texts beyond the
model's positions are read in windows over words, unless the caller or fine-tuning chose an error or truncation.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bertkit.errors import BertkitError
from bertkit.inference.classification import limit_of
from bertkit.model.bert import BertModel
from bertkit.tasks.predicting import predict_examples
from bertkit.tasks.reading.examples import TagExample
from bertkit.tasks.registry import StoredTask
from bertkit.tasks.tagging.decoding import Entity, located
from bertkit.tasks.tagging.task import tagging_of
from bertkit.tasks.tagging.words import cut_text
from bertkit.tokenizer import LongPolicy, Tokenizer

TEXTS_AT_ONCE = 256

Sentence = str | Sequence[str]  # a text, or its words


@dataclass(frozen=True)
class TaggedText:
    """A text, its words, a tag for each (BIO), and its entities: text[entity.start:entity.end] == entity.text."""

    text: str  # words that came without a text are joined by spaces
    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]  # of the words, in characters of the text
    tags: tuple[str, ...]
    entities: tuple[Entity, ...]
    num_windows: int = 1  # more: it was long, and each word was read where it has most context
    num_cut: int = 0  # words that truncation took; they count as O


def tag_texts(
    model: BertModel,
    tokenizer: Tokenizer,
    texts: Iterable[Sentence],
    *,
    stored: StoredTask | None = None,
    long: LongPolicy | None = None,
    stride: int | None = None,
    max_tokens: int | None = None,
) -> Iterator[TaggedText]:
    """Every text tagged, some at a time, so that a stream of any length is never held whole."""
    task = tagging_of(model.config, stored.settings if stored else {})
    own = limit_of(model, stored, long)
    limit = own if stride is None else replace(own, stride=stride)
    examples = (as_example(text, tokenizer) for text in texts)
    for scored in predict_examples(
        task, model, tokenizer, examples, limit, max_tokens=max_tokens, chunk_size=TEXTS_AT_ONCE
    ):
        (text, spans), found = located(scored.example), scored.prediction
        words = scored.example.words
        yield TaggedText(text, words, spans, found.tags, found.entities, found.num_windows, found.num_cut)


def as_example(text: Sentence, tokenizer: Tokenizer) -> TagExample:
    """A text cut into words, or the words given."""
    if isinstance(text, str):
        return cut_text(text, tokenizer)
    if not isinstance(text, Sequence) or not all(isinstance(word, str) for word in text):
        raise BertkitError(f"cannot tag {text!r:.60}: give a text, or a list of words")
    return TagExample(tuple(text))
