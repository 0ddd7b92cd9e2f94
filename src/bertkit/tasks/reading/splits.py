"""What is between the files: a split of one file, duplicates across splits, how frequent classes are and their weights.

Two texts are the same if they differ in case and spaces alone. The same seed gives the same split.
"""

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bertkit.errors import BertkitError
from bertkit.tasks.reading.examples import Label, QuestionExample, TagExample, TextExample
from bertkit.text.counted import agree, counted

Example = TypeVar("Example", TextExample, TagExample, QuestionExample)
NUM_BINS = 10  # numbers are split by tenths of their order
NUM_NAMED = 5


@dataclass(frozen=True)
class Split(Generic[Example]):
    """One file as two, in the file's order, and a line that says how."""

    train: list[Example]
    dev: list[Example]
    said: str


def split_examples(examples: Sequence[Example], *, share: float = 0.1, seed: int = 0) -> Split[Example]:
    """Hold out a share of every class; what is the same (equal texts, questions on one context) stays together."""
    if not 0 < share < 1:
        raise BertkitError(f"the share of held-out examples is {share}; give one between 0 and 1")
    groups: dict[bytes, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        groups[_group_key(example)].append(index)
    if len(groups) < 2:
        raise BertkitError("one text alone cannot be split into training and held-out examples; give more")
    strata: dict[Hashable, list[list[int]]] = defaultdict(list)
    for group, stratum in zip(groups.values(), _strata([examples[group[0]] for group in groups.values()]), strict=True):
        strata[stratum].append(group)
    if len(strata) == len(groups) and all(isinstance(stratum, str) for stratum in strata):
        raise BertkitError(
            "every class has one text alone, so none can be held out; check that the label column holds classes, "
            "or give held-out examples of your own"
        )
    held = {index for group in _draw(list(strata.values()), share, seed) for index in group}
    train, dev = (
        [example for index, example in enumerate(examples) if (index in held) == side] for side in (False, True)
    )
    how = "at random" if len(strata) == 1 else "by class" if isinstance(next(iter(strata)), str) else "by number"
    said = f"one file only: {len(dev):,} of {len(examples):,} examples ({len(dev) / len(examples):.0%}) held out {how}, seed {seed}"
    return Split(train, dev, said)


def _draw(strata: Sequence[Sequence[list[int]]], share: float, seed: int) -> list[list[int]]:
    """A share of every stratum; what rounding leaves is carried on to the next, so that the whole share is right."""
    chooser, chosen, owed = random.Random(seed), list[list[int]](), 0.0
    for groups in strata:
        shuffled = chooser.sample(groups, len(groups))
        owed += share * sum(map(len, groups))
        for group in shuffled[:-1]:  # a class keeps one for training
            if owed < len(group) / 2:
                break
            chosen.append(group)
            owed -= len(group)
    return chosen or [max(strata, key=len)[0]]


def _strata(examples: Sequence[Example]) -> list[Hashable]:
    """The class of every example (the rarest of several), or the tenth of the numbers that its number is in."""
    labels = [example.label if isinstance(example, TextExample) else None for example in examples]
    if any(isinstance(label, float) for label in labels):
        order = sorted(range(len(labels)), key=lambda index: (str(type(labels[index])), labels[index]))
        places = {index: place * NUM_BINS // len(order) for place, index in enumerate(order)}
        return [places[index] for index in range(len(labels))]
    counts = count_classes(labels)
    return [
        min(label, key=lambda name: counts[name], default="") if isinstance(label, tuple) else label for label in labels
    ]


def text_key(*texts: str) -> bytes:
    """The same for texts that differ in case and spaces alone."""
    plain = "\0".join(" ".join(text.casefold().split()) for text in texts)
    return hashlib.blake2b(plain.encode("utf-8", errors="surrogatepass"), digest_size=16).digest()


def example_key(example: TextExample | TagExample | QuestionExample) -> bytes:
    """The same for examples with the same text, whatever their label."""
    match example:
        case TextExample():
            return text_key(example.text, example.pair or "")
        case TagExample():
            return text_key(" ".join(example.words))
        case QuestionExample():
            return text_key(example.question, example.context)


def _group_key(example: TextExample | TagExample | QuestionExample) -> bytes:
    return text_key(example.context) if isinstance(example, QuestionExample) else example_key(example)


@dataclass(frozen=True)
class Duplicates:
    """Examples of one split whose text stands in an earlier split too."""

    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (earlier, later): how many of the later
    named: Sequence[tuple[str, int | None, str, int | None]] = ()  # earlier, line, later, line: the first few

    def lines(self) -> list[str]:
        """For people: one line for each two splits that share texts, and the first places."""
        shown = [
            f"{counted(count, 'text')} of {later} {agree(count, 'stands', 'stand')} in {earlier} too"
            for (earlier, later), count in self.counts.items()
        ]
        return shown + [
            f"  {later}, line {there}: as {earlier}, line {here}" for earlier, here, later, there in self.named
        ]


def find_duplicates(splits: Mapping[str, Iterable[TextExample | TagExample | QuestionExample]]) -> Duplicates:
    """Texts that stand in two splits; a digest and a place are held for each, not the text."""
    first: dict[bytes, tuple[str, int | None]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    named: list[tuple[str, int | None, str, int | None]] = []
    for name, examples in splits.items():
        for example in examples:
            earlier, line = first.setdefault(example_key(example), (name, example.line))
            if earlier != name:
                counts[earlier, name] += 1
                if len(named) < NUM_NAMED:
                    named.append((earlier, line, name, example.line))
    return Duplicates(dict(counts), named)


def count_classes(labels: Iterable[Label | None]) -> dict[str, int]:
    """How often each class comes, the most frequent first; of several classes each counts."""
    counts: Counter[str] = Counter()
    for label in labels:
        if isinstance(label, tuple):
            counts.update(label)
        elif isinstance(label, str):
            counts[label] += 1
    return dict(counts.most_common())


def class_weights(counts: Mapping[str, int]) -> dict[str, float]:
    """Weights by which every class counts the same in all: the mean count by the class's own."""
    if not counts or min(counts.values()) < 1:
        raise BertkitError("class weights need at least one example of every class; drop the empty class")
    mean = sum(counts.values()) / len(counts)
    return {label: mean / count for label, count in counts.items()}
