"""Every word gets the tag that it had most often in training: what BERT has to beat on named entities."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from bertkit.errors import BertkitError
from bertkit.tasks.reading.conll import to_bio
from bertkit.tasks.reading.examples import TagExample


class WordBaseline:
    """A table from words to tags; words that were never seen get the most frequent tag of all."""

    name = "most frequent tag of each word"

    def __init__(self, examples: Sequence[TagExample]) -> None:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for example in examples:
            if example.tags is None:
                raise BertkitError("the baseline learns from tagged sentences; one of these has no tags")
            for word, tag in zip(example.words, example.tags, strict=True):
                counts[word][tag] += 1
        self.tags = {word: found.most_common(1)[0][0] for word, found in counts.items()}
        total = sum(counts.values(), Counter[str]())
        self.other = total.most_common(1)[0][0] if total else "O"

    def predict(self, examples: Sequence[TagExample]) -> list[tuple[str, ...]]:
        """Tags of each sentence, as legal BIO."""
        return [to_bio([self.tags.get(word, self.other) for word in example.words]) for example in examples]
