"""BLiMP (Warstadt et al., 2020): in 67 sets of sentence pairs, is the grammatical one the likelier one?

What enters: a folder of .jsonl files, a checkpoint with an MLM head. What leaves: the accuracy of every set, and their
mean. A tie is wrong.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bertkit.errors import BertkitError
from bertkit.studies.pseudo_likelihood import TextScorer


@dataclass(frozen=True)
class PairSet:
    """Sentence pairs about one phenomenon."""

    name: str
    field: str  # syntax, morphology, ...
    term: str  # the linguists' name of the phenomenon
    pairs: Sequence[tuple[str, str]]  # good, bad


@dataclass(frozen=True)
class SetScore:
    """How often the good sentence was the likelier one."""

    name: str
    field: str
    term: str
    num_pairs: int
    accuracy: float


def read_blimp(folder: Path, limit: int | None = None) -> Iterator[PairSet]:
    """Every set of a folder, in the order of their names; with a limit, the first pairs of each."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise BertkitError(f"{folder} has no .jsonl files of sentence pairs; unpack BLiMP there")
    for file in files:
        yield _read_set(file, limit)


def _read_set(file: Path, limit: int | None) -> PairSet:
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[:limit] if line.strip()]
        pairs = [(str(row["sentence_good"]), str(row["sentence_bad"])) for row in rows]
        return PairSet(file.stem, rows[0].get("field", ""), rows[0].get("linguistics_term", ""), pairs)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BertkitError(f"{file} is no file of sentence pairs ({error}); unpack BLiMP anew") from None


def score_set(scorer: TextScorer, pairs: PairSet) -> SetScore:
    """One set; both sentences of all pairs go through together."""
    scores = scorer.score([text for pair in pairs.pairs for text in pair]).reshape(-1, 2)
    accuracy = float((scores[:, 0] > scores[:, 1]).mean())
    return SetScore(pairs.name, pairs.field, pairs.term, len(pairs.pairs), accuracy)


def summarise_blimp(sets: Iterable[SetScore]) -> dict[str, Any]:
    """The mean over the sets, and over those of each phenomenon; the sets themselves."""
    scores = list(sets)
    terms = dict.fromkeys(score.term for score in scores)
    return {
        "accuracy": fmean(score.accuracy for score in scores),
        "num_sets": len(scores),
        "num_pairs": sum(score.num_pairs for score in scores),
        "terms": {term: fmean(one.accuracy for one in scores if one.term == term) for term in terms},
        "sets": [asdict(score) for score in scores],
    }
