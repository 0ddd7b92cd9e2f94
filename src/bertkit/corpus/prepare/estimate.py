"""How large a store will be and how long it will take, from a sample of the text; nothing is written.

What enters: input files and a tokenizer. What leaves: an Estimate. The beginnings of a few files are read and encoded
on one core; packed files are unpacked a little to see how much text they hold.
"""

from __future__ import annotations

import lzma
import shutil
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bertkit.cores import num_cores
from bertkit.corpus.prepare.blocks import BlockEncoder, EncodedBlock, PrepareOptions, blocks_of
from bertkit.corpus.prepare.plan import find_inputs
from bertkit.corpus.prepare.pool import one_thread
from bertkit.corpus.store import OFFSET
from bertkit.errors import BertkitError
from bertkit.text.counted import counted, in_millions
from bertkit.text.documents import read_documents
from bertkit.text.files import kind_of
from bertkit.tokenizer.wordpiece import Tokenizer

FILES_SAMPLED = 4
BLOCKS_SAMPLED = 2  # of each of them
PACKED_SAMPLE = 1 << 20  # bytes
USUAL_FACTOR = 3.0  # of text over bytes, for packings that are not looked into
WORK_FACTOR = 1.2  # a part holds the tokens too, with lengths and keys, until its shard is written


@dataclass(frozen=True)
class Estimate:
    """What a store will need, about."""

    num_files: int
    num_characters: int
    num_tokens: int
    store_bytes: int
    peak_bytes: int  # with what is there only until the store is finished
    free_bytes: int
    seconds: float
    num_workers: int

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    def line(self) -> str:
        """For people."""
        minutes, seconds = divmod(round(self.seconds), 60)
        return (
            f"about {in_millions(self.num_characters)} characters in {counted(self.num_files, 'file')}: "
            f"{in_millions(self.num_tokens)} tokens, {self.store_bytes / 1e6:,.0f} MB on disk "
            f"({self.peak_bytes / 1e6:,.0f} MB until finished), {minutes} min {seconds:02d} s on {counted(self.num_workers, 'core')}"
        )

    def check_disk(self, folder: Path) -> None:
        """Refuse when the disk is too small."""
        if self.peak_bytes > self.free_bytes:
            raise BertkitError(
                f"{folder} needs about {self.peak_bytes / 1e9:,.1f} GB, but {self.free_bytes / 1e9:,.1f} GB are free; "
                "make room, choose another disk, or say --yes to try"
            )


def estimate(
    inputs: Iterable[str | Path],
    tokenizer: Tokenizer,
    out: str | Path,
    options: PrepareOptions | None = None,
    *,
    workers: int | None = None,
) -> Estimate:
    """Sample the inputs of `prepare`."""
    paths, options = find_inputs(inputs, Path(out)), options or PrepareOptions()
    num_workers = workers or num_cores()
    text_bytes = sum(path.stat().st_size * text_factor(path) for path in paths)
    sample, sample_bytes, seconds = _sample(paths, BlockEncoder(tokenizer, options), options)
    scale = text_bytes / max(1, sample_bytes)
    characters = sum(block.num_characters for block in sample)
    tokens = sum(len(block.tokens) for block in sample)
    offsets = sum(len(block.sentences) + len(block.documents) for block in sample) * OFFSET.itemsize
    store_bytes = round(scale * (offsets + sum(block.tokens.nbytes for block in sample)))
    free = shutil.disk_usage(
        next(place for place in (Path(out).absolute(), *Path(out).absolute().parents) if place.exists())
    )
    return Estimate(
        len(paths),
        round(scale * characters),
        round(scale * tokens),
        store_bytes,
        round(store_bytes * (1 + WORK_FACTOR)),
        free.free,
        seconds * scale / num_workers,
        num_workers,
    )


def text_factor(path: Path) -> float:
    """Bytes of text for each byte of a file, seen on its beginning."""
    with path.open("rb") as file:
        packed = file.read(PACKED_SAMPLE)
    try:
        match path.suffix.lower():
            case ".gz":
                return len(zlib.decompressobj(31).decompress(packed)) / max(1, len(packed))
            case ".xz":
                return len(lzma.LZMADecompressor().decompress(packed)) / max(1, len(packed))
    except (zlib.error, lzma.LZMAError):
        return 1.0  # damaged: `prepare` will name it
    return USUAL_FACTOR if path.suffix.lower() == ".zst" or kind_of(path) == "parquet" else 1.0


def _sample(
    paths: Sequence[Path], encoder: BlockEncoder, options: PrepareOptions
) -> tuple[list[EncodedBlock], int, float]:
    """Blocks of some files, their size as UTF-8, and the seconds that as much text takes, reading included."""
    chosen = paths[:: max(1, len(paths) // FILES_SAMPLED)][:FILES_SAMPLED]
    blocks: list[EncodedBlock] = []
    sample_bytes = 0
    rate = 0.0
    with one_thread():
        for path in chosen:
            start = time.perf_counter()
            for block in islice(blocks_of(read_documents(path, options.reading())), BLOCKS_SAMPLED):
                blocks.append(encoder.encode(block))
                # The encoder gets faster while it learns the words, so the last block tells most.
                seconds = time.perf_counter() - start
                block_bytes = sum(len(text.encode()) for paragraphs in block for text in paragraphs)
                rate = seconds / max(1, block_bytes)
                sample_bytes += block_bytes
                start = time.perf_counter()
    return blocks, sample_bytes, rate * sample_bytes
