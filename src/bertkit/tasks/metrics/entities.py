"""Scores of named entities, equal to those of conlleval, the CoNLL shared tasks' script.

What enters: true and predicted tags of one sentence. What leaves: precision, recall and F1 of whole entities (their
first word, last word and kind must all be right), and the share of words with the right tag. Only counts are kept.
"""

from collections import Counter
from collections.abc import Sequence

from bertkit.errors import BertkitError
from bertkit.tasks.metrics.classes import ClassScore, ratio, score_class
from bertkit.tasks.tagging.labels import find_entities, parse_tag


class EntityMetrics:
    """Entities of all sentences so far. Tags may be BIO, IOB1 or BIOES: an I after nothing begins an entity."""

    def __init__(self) -> None:
        self.hits, self.predicted, self.support = Counter[str](), Counter[str](), Counter[str]()
        self.num_words = self.num_right = 0

    def add(self, gold: Sequence[str], predicted: Sequence[str]) -> None:
        """One more sentence."""
        if len(gold) != len(predicted):
            raise BertkitError(f"{len(gold)} true tags beside {len(predicted)} predicted ones; give one a word")
        true, found = (set(find_entities([parse_tag(tag) for tag in tags])) for tags in (gold, predicted))
        for spans, counts in ((true & found, self.hits), (found, self.predicted), (true, self.support)):
            counts.update(span.kind for span in spans)
        self.num_words += len(gold)
        self.num_right += sum(a == b for a, b in zip(gold, predicted, strict=True))

    def per_class(self) -> list[ClassScore]:
        """Every kind of entity by itself, in alphabetical order."""
        kinds = sorted(self.predicted.keys() | self.support.keys())
        return [score_class(kind, self.hits[kind], self.predicted[kind], self.support[kind]) for kind in kinds]

    def scores(self) -> dict[str, float]:
        """All kinds together."""
        whole = score_class("", self.hits.total(), self.predicted.total(), self.support.total())
        accuracy = ratio(self.num_right, self.num_words)
        return {"f1": whole.f1, "precision": whole.precision, "recall": whole.recall, "word_accuracy": accuracy}
