"""One input file -> one part, the shard before de-duplication; and part -> shard, with the duplicates left out.

What enters: blocks of encoded documents; later, the numbers of the paragraphs to leave out. What leaves: arrays in the
work folder, then the shard's files. Each is streamed in blocks, and a small JSON file, written last, says it is done.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.dedup import KEY
from bertkit.corpus.prepare.blocks import LENGTH, EncodedBlock
from bertkit.corpus.store import OFFSET, ShardEntry, shard_names
from bertkit.corpus.store_files import ArrayReader, ArrayWriter, StoredFile, replace_text
from bertkit.text.reports import Problem, ReadReport

ARRAYS = ("tokens", "sentences", "paragraphs", "documents", "characters", "keys")
PARAGRAPHS_AT_ONCE = 1 << 13
CHARACTERS_AT_ONCE = 1 << 21  # or one paragraph
Keep = Callable[[int, int], NDArray[np.bool_]]  # which of a range of the part's paragraphs stay
LONGEST_COUNTED = 512  # tokens; longer sentences share the last place of the histogram


@dataclass(frozen=True)
class ShardFigures:
    """What a shard holds and what was left out of it, for the report."""

    histogram: list[int]  # number of sentences by their length
    num_unknown: int
    num_duplicates: int
    duplicate_characters: int
    num_emptied: int  # documents of which nothing was left


def part_path(work: Path, index: int, name: str) -> Path:
    """Where an array of a part lies, or its JSON file."""
    return work / f"part-{index:05d}.{name}"


def array_types(dtype: np.dtype[Any]) -> dict[str, np.dtype[Any]]:
    """The arrays of a part and their types."""
    return dict(zip(ARRAYS, (dtype, LENGTH, LENGTH, LENGTH, LENGTH, KEY), strict=True))


def write_part(
    work: Path, index: int, blocks: Iterable[EncodedBlock], dtype: np.dtype[Any], report: ReadReport, name: str
) -> None:
    """Write the arrays of a part and then what was read; `report` is full when the blocks are through."""
    num_paragraphs = 0
    with ExitStack() as stack:
        files = {
            array: stack.enter_context(ArrayWriter(part_path(work, index, array), kind))
            for array, kind in array_types(dtype).items()
        }
        for block in blocks:
            num_paragraphs += len(block.paragraphs)
            for array, file in files.items():
                file.write(getattr(block, array))
    # The file's name alone: the same text gives the same report, wherever it lies.
    report.named = [Problem(name, problem.line, problem.reason) for problem in report.named]
    done = {"num_paragraphs": num_paragraphs, "read": report.to_json()}
    replace_text(part_path(work, index, "json"), json.dumps(done))


def read_part(work: Path, index: int) -> tuple[int, ReadReport]:
    """Number of paragraphs, and what was read, of a finished part."""
    done = json.loads(part_path(work, index, "json").read_text(encoding="utf-8"))
    return done["num_paragraphs"], ReadReport.from_json(done["read"])


def write_shard_of_part(work: Path, folder: Path, index: int, keep: Keep, dtype: np.dtype[Any], unk_id: int) -> None:
    """Copy what is to be kept of a part to its final files."""
    writer = ShardWriter(folder, index, dtype, unk_id)
    with writer.files:
        for piece in read_slices(work, index, dtype):
            writer.write(piece, keep(piece.start, piece.start + len(piece.paragraphs)))
    done = {"entry": asdict(writer.entry), "figures": asdict(writer.figures)}
    replace_text(work / f"shard-{index:05d}.json", json.dumps(done))


def drop_part(work: Path, index: int) -> None:
    """Remove the arrays of a part whose shard is finished; what was read stays noted."""
    for name in ARRAYS:
        part_path(work, index, name).unlink(missing_ok=True)


def read_shard(work: Path, index: int) -> tuple[ShardEntry, ShardFigures]:
    """The manifest's entry and the figures of a finished shard."""
    done = json.loads((work / f"shard-{index:05d}.json").read_text(encoding="utf-8"))
    entry = done["entry"]
    files = {kind: StoredFile(**entry[kind]) for kind in ("tokens", "sentences", "documents")}
    return ShardEntry(**{**entry, **files}), ShardFigures(**done["figures"])


@dataclass(frozen=True)
class Slice:
    """Some paragraphs of a part that follow each other."""

    start: int  # number of the first paragraph in the part
    tokens: NDArray[Any]
    sentences: NDArray[np.uint32]
    paragraphs: NDArray[np.uint32]
    characters: NDArray[np.uint32]
    ends: NDArray[np.int64]  # of documents, counted in paragraphs of this slice


def read_slices(work: Path, index: int, dtype: np.dtype[Any]) -> Iterator[Slice]:
    """All paragraphs of a part in order, as many at a time as memory should hold."""
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(ArrayReader(part_path(work, index, name), kind))
            for name, kind in array_types(dtype).items()
        }
        ends = np.zeros(0, np.int64)  # of the documents read so far and not yet given
        start = last_end = 0
        for characters in _portions(files["characters"]):
            stop = start + len(characters)
            while last_end < stop:
                ends = np.append(
                    ends, last_end + np.cumsum(files["documents"].take(PARAGRAPHS_AT_ONCE), dtype=np.int64)
                )
                last_end = int(ends[-1])
            num_ended = int(np.searchsorted(ends, stop, side="right"))
            paragraphs = files["paragraphs"].take(len(characters))
            sentences = files["sentences"].take(int(paragraphs.sum()))
            tokens = files["tokens"].take(int(sentences.sum()))
            yield Slice(start, tokens, sentences, paragraphs, characters, ends[:num_ended] - start)
            start, ends = stop, ends[num_ended:]


def _portions(file: ArrayReader) -> Iterator[NDArray[np.uint32]]:
    """The lengths of paragraphs in characters, so many together that their text is not too much."""
    while len(lengths := file.take(PARAGRAPHS_AT_ONCE)):
        while len(lengths):
            fitting = np.searchsorted(np.cumsum(lengths, dtype=np.int64), CHARACTERS_AT_ONCE, side="right")
            size = max(1, int(fitting))
            yield lengths[:size]
            lengths = lengths[size:]


class ShardWriter:
    """Slices of a part to the three files of a shard, with counts for the manifest and the report."""

    def __init__(self, folder: Path, index: int, dtype: np.dtype[Any], unk_id: int) -> None:
        self.files = ExitStack()
        types = (dtype, OFFSET, OFFSET)
        self._writers = [
            self.files.enter_context(ArrayWriter(folder / name, kind))
            for name, kind in zip(shard_names(index), types, strict=True)
        ]
        self._unk_id = unk_id
        self._histogram = np.zeros(LONGEST_COUNTED + 1, np.int64)
        self._counts = Counter[str]()
        for offsets in self._writers[1:]:
            offsets.write(np.zeros(1, OFFSET))
        self._last_end = 0

    def write(self, piece: Slice, kept: NDArray[np.bool_]) -> None:
        """Append the kept paragraphs of a slice."""
        counts = self._counts
        kept_sentences = np.repeat(kept, piece.paragraphs)
        lengths = piece.sentences[kept_sentences]
        tokens = piece.tokens[np.repeat(kept_sentences, piece.sentences)]
        self._writers[0].write(tokens)
        self._writers[1].write(counts["tokens"] + np.cumsum(lengths, dtype=np.int64))
        # A document of which nothing is left ends where the one before it does.
        sentences_before = counts["sentences"] + np.cumsum(piece.paragraphs * kept, dtype=np.int64)
        ends = sentences_before[piece.ends - 1]
        ends = ends[np.diff(ends, prepend=self._last_end) > 0]
        self._writers[2].write(ends)
        self._last_end = int(ends[-1]) if len(ends) else self._last_end
        self._histogram += np.bincount(np.minimum(lengths, LONGEST_COUNTED), minlength=LONGEST_COUNTED + 1)
        counts["tokens"] += len(tokens)
        counts["sentences"] += len(lengths)
        counts["documents"] += len(ends)
        counts["emptied"] += len(piece.ends) - len(ends)
        counts["unknown"] += int((tokens == self._unk_id).sum())
        counts["duplicates"] += int((~kept).sum())
        counts["characters"] += int(piece.characters[~kept].sum())

    @property
    def entry(self) -> ShardEntry:
        """What the manifest says, when all is written."""
        counts = self._counts
        stored = (writer.stored for writer in self._writers)
        return ShardEntry(counts["documents"], counts["sentences"], counts["tokens"], *stored)

    @property
    def figures(self) -> ShardFigures:
        """What the report needs, when all is written."""
        names = ("unknown", "duplicates", "characters", "emptied")
        return ShardFigures(self._histogram.tolist(), *(self._counts[name] for name in names))
