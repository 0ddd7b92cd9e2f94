"""The report of a finished store: counts, lengths of sentences, what could not be read, and the duplicates.

What enters: what each part and shard recorded. What leaves: report.json and report.txt beside the shards. No times
and no places on this machine are in them, so that the same input gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.corpus.prepare.parts import LONGEST_COUNTED, ShardFigures
from bertkit.corpus.store import REMAKE, Manifest
from bertkit.corpus.store_files import replace_text
from bertkit.errors import BertkitError
from bertkit.text.counted import counted
from bertkit.text.reports import ReadReport

REPORT_JSON = "report.json"
REPORT_TEXT = "report.txt"
SHARES = {"median": 0.5, "p90": 0.9, "p99": 0.99}
NUM_SHOWN = 10


@dataclass(frozen=True)
class RepeatedText:
    """A paragraph that occurs again and again: how often, and how it begins, decoded from its tokens."""

    count: int
    text: str


@dataclass(frozen=True)
class PrepareReport:
    """What went into a store and what was left out."""

    num_documents: int
    num_sentences: int
    num_tokens: int
    num_bytes: int
    tokens_per_sentence: dict[str, float]  # mean, median, p90, p99
    num_long_sentences: int  # of LONGEST_COUNTED tokens and more
    unknown_share: float  # of all tokens
    num_duplicates: int  # paragraphs left out
    duplicate_characters: int
    num_emptied_documents: int  # of which all paragraphs were duplicates
    most_repeated: tuple[RepeatedText, ...]
    read: dict[str, Any]  # a ReadReport

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> PrepareReport:
        """Read what `to_json` gave."""
        repeated = tuple(RepeatedText(**entry) for entry in stored["most_repeated"])
        return cls(**{**stored, "most_repeated": repeated})

    def lines(self) -> list[str]:
        """For people."""
        lengths = ", ".join(f"{name} {value:g}" for name, value in self.tokens_per_sentence.items())
        return [
            f"{counted(self.num_tokens, 'token')} in {counted(self.num_sentences, 'sentence')} of "
            f"{counted(self.num_documents, 'document')}; "
            f"{self.num_bytes / 1e6:,.1f} MB on disk",
            f"tokens per sentence: {lengths}; {self.num_long_sentences:,} of {LONGEST_COUNTED} and more",
            f"unknown tokens: {self.unknown_share:.4%}",
            *ReadReport.from_json(self.read).lines(),
            f"duplicates left out: {counted(self.num_duplicates, 'paragraph')}, "
            f"{counted(self.duplicate_characters, 'character')}; "
            f"{counted(self.num_emptied_documents, 'document')} held nothing else",
            *(f"  {entry.count:,} times: {entry.text}" for entry in self.most_repeated[:NUM_SHOWN]),
        ]


def make_report(
    manifest: Manifest, figures: Sequence[ShardFigures], reads: Sequence[ReadReport], repeated: Sequence[RepeatedText]
) -> PrepareReport:
    """Add up what the shards recorded."""
    read = ReadReport()
    for part in reads:
        read.merge(part)
    histogram = np.sum([shard.histogram for shard in figures], axis=0)
    sentences = max(1, manifest.num_sentences)
    reached = np.cumsum(histogram) / sentences
    places = {name: float(np.searchsorted(reached, share)) for name, share in SHARES.items()}
    return PrepareReport(
        manifest.num_documents,
        manifest.num_sentences,
        manifest.num_tokens,
        sum(file.size for shard in manifest.shards for file in shard.files()),
        {"mean": round(manifest.num_tokens / sentences, 2)} | (places if manifest.num_sentences else {}),
        int(histogram[-1]),
        sum(shard.num_unknown for shard in figures) / max(1, manifest.num_tokens),
        sum(shard.num_duplicates for shard in figures),
        sum(shard.duplicate_characters for shard in figures),
        sum(shard.num_emptied for shard in figures),
        tuple(repeated),
        read.to_json(),
    )


def write_report(folder: Path, report: PrepareReport) -> None:
    """Both forms, beside the shards."""
    replace_text(folder / REPORT_JSON, json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n")
    replace_text(folder / REPORT_TEXT, "\n".join(report.lines()) + "\n")


def read_report(folder: Path) -> PrepareReport:
    """The report of a finished store."""
    path = folder / REPORT_JSON
    try:
        return PrepareReport.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BertkitError(f"{path} cannot be read ({error}); {REMAKE}") from None
