"""The jobs of `bertkit prepare`: encode a block, make a part of an input file, make a shard of a part.

What enters: places of files and numbers of parts. What leaves: files in the work folder and the store.
A job needs nothing but its arguments, so that it can be done in this process or in any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bertkit.corpus.dedup import DuplicateLists, Duplicates
from bertkit.corpus.prepare.blocks import BlockEncoder, EncodedBlock, Paragraphs, PrepareOptions, blocks_of
from bertkit.corpus.prepare.parts import write_part, write_shard_of_part
from bertkit.corpus.store import token_dtype
from bertkit.corpus.store_files import plain_name
from bertkit.errors import BertkitError
from bertkit.text.documents import read_documents
from bertkit.text.reports import ReadReport
from bertkit.tokenizer.wordpiece import Tokenizer

Progress = Callable[[int], None]
Blocks = Iterator[list[Paragraphs]]


@dataclass(frozen=True)
class Input:
    """An input file and its state when its checksum was taken."""

    path: Path
    size: int
    changed_ns: int

    @classmethod
    def look_at(cls, path: Path) -> Input:
        """The file as it is now."""
        state = path.stat()
        return cls(path, state.st_size, state.st_mtime_ns)


class Jobs:
    """What a worker does, in its process or in the parent's."""

    def __init__(self, tokenizer: Tokenizer, options: PrepareOptions, folder: Path, work: Path) -> None:
        self.dtype = token_dtype(tokenizer.vocab_size)
        self.unk_id = tokenizer.unk_id
        self.options = options
        self.folder = folder
        self.work = work
        self._encoder = BlockEncoder(tokenizer, options)

    def encode(self, block: list[Paragraphs], progress: Progress) -> EncodedBlock:
        """One block of a file that the parent reads."""
        return self._encoder.encode(block)

    def part(self, index: int, source: Input, progress: Progress) -> None:
        """A whole input file by itself."""
        self.write_part(index, source, lambda blocks: map(self._encoder.encode, blocks), progress)

    def write_part(
        self, index: int, source: Input, encode: Callable[[Blocks], Iterator[EncodedBlock]], progress: Progress
    ) -> None:
        """Read, encode (here or elsewhere) and write one input file."""
        report = ReadReport()
        documents = read_documents(source.path, self.options.reading(), report)
        blocks = _counted(encode(blocks_of(documents)), progress)
        write_part(self.work, index, _unchanged(blocks, source), self.dtype, report, plain_name(source.path))

    def shard(self, index: int, duplicates: Duplicates, first_paragraph: int, progress: Progress) -> int:
        """A part to its final files; the parent, and no orphan of an earlier start, drops the part."""
        lists = DuplicateLists(self.work / "dedup", duplicates)
        write_shard_of_part(
            self.work,
            self.folder,
            index,
            lambda start, stop: lists.keep(first_paragraph + start, first_paragraph + stop),
            self.dtype,
            self.unk_id,
        )
        return index


def _counted(blocks: Iterator[EncodedBlock], progress: Progress) -> Iterator[EncodedBlock]:
    for block in blocks:
        yield block
        progress(block.num_characters)


def _unchanged(blocks: Iterator[EncodedBlock], source: Input) -> Iterator[EncodedBlock]:
    """The blocks, and a refusal at the end when the file is not any more what it was at the start."""
    yield from blocks
    if Input.look_at(source.path) != source:
        # The store was begun with the file's old content, and no second start goes on with another.
        raise BertkitError(
            f"{source.path} changed while it was read; when it is complete, start again with another folder"
        )
