"""The words beside those of the question: what BERT has to beat on question answering.

In the sentence that shares most with the question, the run of words that the question does not have and that stands
nearest to those that it has. Nothing is learned but how rare words are.
"""

import re
from collections import Counter
from collections.abc import Sequence
from math import log

from bertkit.tasks.reading.examples import Answer, QuestionExample

WORD = re.compile(r"\w+")
SENTENCE = re.compile(r"[^.!?]+(?:[.!?](?!\s|$)[^.!?]*)*[.!?]?")
COMMON = {"a", "an", "the", "of", "in", "on", "at", "to", "for", "from", "by", "with", "and", "or", "as", "is", "are"}
COMMON |= {"was", "were", "be", "been", "it", "its", "that", "which", "who", "this", "these"}
MOST_WORDS = 6


class AnswerBaseline:
    """A sliding window over the contexts of the questions themselves."""

    name = "words beside those of the question"

    def __init__(self, examples: Sequence[QuestionExample]) -> None:
        contexts = {example.context for example in examples}
        self.counts = Counter(word for context in contexts for word in set(WORD.findall(context.lower())))
        self.num_contexts = len(contexts)

    def rarity(self, word: str) -> float:
        """More for words that few contexts have."""
        return log((1 + self.num_contexts) / (1 + self.counts[word])) + 1.0

    def predict(self, examples: Sequence[QuestionExample]) -> list[Answer | None]:
        """An answer each; None where a context has no words."""
        return [self.answer(example.question, example.context) for example in examples]

    def answer(self, question: str, context: str) -> Answer | None:
        """The best run of words, where it stands."""
        asked = set(WORD.findall(question.lower())) - COMMON
        best: tuple[float, int, int] | None = None
        for sentence in SENTENCE.finditer(context):
            words = list(WORD.finditer(context, *sentence.span()))
            shared = [self.rarity(word[0].lower()) if word[0].lower() in asked else 0.0 for word in words]
            for first, last in _runs([word[0].lower() for word in words], asked):
                near = sum(weight / (1 + min(abs(i - first), abs(i - last))) for i, weight in enumerate(shared))
                names = sum(word[0][0].isupper() or word[0][0].isdigit() for word in words[first : last + 1])
                score = sum(shared) + near + names / (last - first + 1)
                if best is None or score > best[0]:
                    best = score, words[first].start(), words[last].end()
        return None if best is None else Answer(context[best[1] : best[2]], best[1])


def _runs(words: Sequence[str], asked: set[str]) -> list[tuple[int, int]]:
    """Stretches of words that are neither asked for nor common, cut to a few words."""
    runs: list[tuple[int, int]] = []
    for place, word in enumerate(words):
        if word in asked or word in COMMON:
            continue
        if runs and runs[-1][1] == place - 1 and place - runs[-1][0] < MOST_WORDS:
            runs[-1] = runs[-1][0], place
        else:
            runs.append((place, place))
    return runs
