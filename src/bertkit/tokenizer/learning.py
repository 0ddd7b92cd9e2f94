"""Files of text -> a vocabulary and a report on it, in bounded memory whatever the size of the corpus.

What enters: files and folders, and the options. What leaves: a Tokenizer with what was read, drawn and measured.
Paragraphs are cleaned and drawn by their hash until the sample is full (text/sampling.py), so the same files and
seed give the same ids, in whatever order the files are named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertkit.cores import num_cores
from bertkit.errors import BertkitError
from bertkit.text.cleaning import clean_paragraph
from bertkit.text.documents import ReadOptions, read_documents
from bertkit.text.files import find_files
from bertkit.text.reports import ReadReport
from bertkit.text.sampling import TextSample, sample_texts
from bertkit.tokenizer.report import VocabularyReport, measure_vocabulary
from bertkit.tokenizer.train import train_vocabulary
from bertkit.tokenizer.wordpiece import Tokenizer

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
HELD_OUT_BYTES = 4 * 10**6
WORTH_WORKERS = 64 * 10**6  # bytes; starting processes costs more than counting less

Step = Callable[[str, int], None]  # takes what is being done and how much of it was done just now


@dataclass(frozen=True)
class VocabularyOptions:
    """What to learn; the size is that of the published vocabularies."""

    size: int = 30_000
    lowercase: bool = True
    sample_bytes: int = 200 * 10**6
    seed: int = 0
    num_unused: int = 0
    num_workers: int = field(default_factory=num_cores, compare=False)  # does not change the result

    def __post_init__(self) -> None:
        for name, least in (("size", 6), ("sample_bytes", 1), ("num_unused", 0), ("num_workers", 1)):
            if getattr(self, name) < least:
                raise BertkitError(f"{name} is {getattr(self, name)}; it must be at least {least}")


@dataclass(frozen=True)
class LearnedVocabulary:
    """A tokenizer, and what it came from."""

    tokenizer: Tokenizer
    measured: VocabularyReport
    measured_on: str
    reading: ReadReport
    num_seen_bytes: int
    num_sampled_bytes: int
    asked_size: int

    def to_json(self) -> dict[str, Any]:
        """Everything but the tokens, for programs."""
        return {
            "vocab_size": self.tokenizer.vocab_size,
            "lowercase": self.tokenizer.lowercase,
            "fingerprint": self.tokenizer.fingerprint,
            "num_seen_bytes": self.num_seen_bytes,
            "num_sampled_bytes": self.num_sampled_bytes,
            "measured_on": self.measured_on,
            "measured": self.measured.to_json(),
            "reading": self.reading.to_json(),
        }

    def lines(self) -> list[str]:
        """For people."""
        share = f"{self.num_sampled_bytes / 1e6:,.1f} MB of {self.num_seen_bytes / 1e6:,.1f} MB"
        lines = [*self.reading.lines(), f"learned from {share}"]
        if self.tokenizer.vocab_size < self.asked_size:
            lines.append(f"{self.tokenizer.vocab_size:,} tokens, not {self.asked_size:,}: this text has no more pieces")
        return [*lines, f"on {self.measured_on}:", *self.measured.lines()]


def learn_vocabulary(
    paths: Iterable[str | Path],
    options: VocabularyOptions,
    *,
    reading: ReadOptions | None = None,
    held_out: str | Path | None = None,
    step: Step | None = None,
) -> LearnedVocabulary:
    """Learn a vocabulary from files and folders; without a held-out file, one paragraph in 200 is held out.

    Large samples are counted by processes of their own: guard scripts with `if __name__ == "__main__"`.
    """
    report = step or (lambda what, amount: None)
    read = ReadReport()
    sample = TextSample(options.sample_bytes, options.seed, 0 if held_out else HELD_OUT_BYTES)
    files = find_files(paths)
    held_out_texts = read_held_out(held_out, reading) if held_out else []
    for paragraph in cleaned_paragraphs(files, reading, read):
        sample.add(paragraph)
        report("paragraphs read", 1)
    if not sample.num_seen_bytes and read.named:
        raise BertkitError(f"there is no word to learn a vocabulary from{read.why_nothing}")
    if not len(sample) and sample.held_out:  # so little text that nothing else is left
        sample = sample_texts(sample.held_out, options.sample_bytes, options.seed)
    if not len(sample) and sample.num_seen:
        raise BertkitError(f"no paragraph fits into a sample of {options.sample_bytes:,} bytes; give a larger one")
    tokenizer = train_vocabulary(
        sample.texts(),
        size=options.size,
        lowercase=options.lowercase,
        num_unused=options.num_unused,
        num_workers=options.num_workers if sample.num_bytes > WORTH_WORKERS else 1,
        progress=lambda count: report("paragraphs counted", count),
    )
    report("pieces learned", tokenizer.vocab_size)
    if held_out:
        texts, name = held_out_texts, str(held_out)
    elif sample.held_out:
        texts, name = sample.held_out, "held-out paragraphs of these files"
    else:
        texts, name = list(sample.texts()), "the text that it was learned from"
    measured = measure_vocabulary(tokenizer, texts)
    sizes = (sample.num_seen_bytes, sample.num_bytes, options.size)
    return LearnedVocabulary(tokenizer, measured, name, read, *sizes)


def cleaned_paragraphs(files: Iterable[Path], options: ReadOptions | None, report: ReadReport) -> Iterator[str]:
    """Every paragraph of these files, cleaned; what nothing is left of is passed over."""
    for file in files:
        for document in read_documents(file, options, report):
            yield from filter(None, map(clean_paragraph, document.paragraphs))


def read_held_out(path: str | Path, options: ReadOptions | None = None) -> list[str]:
    """The paragraphs of a file or folder, cleaned; a file without text is an error, because nothing would be measured."""
    texts = list(cleaned_paragraphs(find_files([path]), options, ReadReport()))
    if not texts:
        raise BertkitError(f"{path} has no text to measure on; name another held-out file")
    return texts


def parse_size(text: str) -> int:
    """A number of bytes as people write it: 200MB, 1.5GB, 64MiB, 1000000."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    unit = match[2].upper().removesuffix("B") if match else "?"
    factor = UNITS.get(f"{unit}B" if unit else "")
    if match is None or factor is None:
        raise BertkitError(f"{text!r} is no size; write it as 200MB, 1.5GB or 64MiB")
    return int(float(match[1]) * factor)
