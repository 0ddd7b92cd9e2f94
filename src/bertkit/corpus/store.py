"""The token store: a corpus as token ids on disk, memory-mapped, once, without copies and without masks.

What enters: token ids of sentences of documents. What leaves: shards that examples are drawn from.
A shard is three plain little-endian arrays (ids in the smallest fitting type, int64 offsets), and documents never
cross shards. The manifest, written last, says how the store was made and what each file must be.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from errno import EMFILE, ENFILE, ENOMEM
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.store_files import StoredFile, allow_open_files, hash_file, map_array, replace_text
from bertkit.errors import BertkitError
from bertkit.tokenizer.wordpiece import Tokenizer

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
OFFSET = np.dtype("<i8")
KINDS = ("tokens", "sentences", "documents")
REMAKE = "prepare the store again, into another folder"  # a finished one is left as it is


@dataclass(frozen=True)
class ShardEntry:
    """The three files of a shard and what they hold."""

    num_documents: int
    num_sentences: int
    num_tokens: int
    tokens: StoredFile
    sentences: StoredFile
    documents: StoredFile

    def files(self) -> tuple[StoredFile, StoredFile, StoredFile]:
        """The three in the order of KINDS."""
        return self.tokens, self.sentences, self.documents


@dataclass(frozen=True)
class Manifest:
    """How a store was made and what it holds; the same input, options and tokenizer give the same bytes."""

    tokenizer_fingerprint: str
    vocab_size: int
    shards: tuple[ShardEntry, ...]
    inputs: tuple[StoredFile, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    num_documents: int = 0
    num_sentences: int = 0
    num_tokens: int = 0
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        for name in ("num_documents", "num_sentences", "num_tokens"):
            object.__setattr__(self, name, sum(getattr(shard, name) for shard in self.shards))

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """The type of the ids on disk."""
        return token_dtype(self.vocab_size)

    @property
    def content(self) -> str:
        """A hash of all tokens and where sentences and documents end: equal for stores that give the same examples."""
        hashes = [file.sha256 for shard in self.shards for file in shard.files()]
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()

    def to_json(self) -> str:
        """The text of manifest.json."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        shards = tuple(
            ShardEntry(**{**shard, **{kind: StoredFile(**shard[kind]) for kind in KINDS}}) for shard in fields["shards"]
        )
        inputs = tuple(StoredFile(**file) for file in fields["inputs"])
        return cls(**{**fields, "shards": shards, "inputs": inputs})


@dataclass(frozen=True)
class Shard:
    """Documents of one input file; sentence s is tokens[sentence_offsets[s] : sentence_offsets[s + 1]]."""

    tokens: NDArray[Any]  # [T] uint16 or uint32
    sentence_offsets: NDArray[np.int64]  # [S + 1] into tokens
    document_offsets: NDArray[np.int64]  # [D + 1] into sentences

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.document_offsets) - 1

    @property
    def num_sentences(self) -> int:
        """Number of sentences."""
        return len(self.sentence_offsets) - 1

    def document(self, index: int) -> list[NDArray[Any]]:
        """The sentences of a document, each as token ids."""
        first, end = int(self.document_offsets[index]), int(self.document_offsets[index + 1])
        bounds = self.sentence_offsets[first : end + 1].tolist()
        return [self.tokens[start:stop] for start, stop in pairwise(bounds)]


class TokenStore:
    """A store on disk, opened for reading; `shards` are memory-mapped, so opening costs nothing."""

    def __init__(self, folder: Path, manifest: Manifest, shards: list[Shard]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.shards = shards

    @classmethod
    def open(cls, folder: str | Path, tokenizer: Tokenizer | None = None) -> TokenStore:
        """Map a finished store; its files must have their sizes, and `tokenizer` must be the one it was made with."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        if tokenizer is not None:
            check_tokenizer(manifest, tokenizer, folder)
        try:
            allow_open_files(len(KINDS) * len(manifest.shards))  # a map holds its file open
            return cls(folder, manifest, [_map_shard(folder, manifest, entry) for entry in manifest.shards])
        except OSError as error:
            if error.errno not in (EMFILE, ENFILE, ENOMEM):
                raise
            raise BertkitError(
                f"{folder} has {len(manifest.shards):,} shards, one of each input file: {error.strerror or error}; "
                "prepare the store from fewer, larger files, or raise `ulimit -n`"
            ) from None

    def verify(self) -> None:
        """Read every file and compare its checksum; a damaged one is named."""
        for entry in self.manifest.shards:
            for file in entry.files():
                if hash_file(self.folder / file.name) != file.sha256:
                    raise BertkitError(f"{self.folder / file.name} is damaged (other checksum); {REMAKE}")

    def documents(self) -> Iterator[list[NDArray[Any]]]:
        """Every document in order, as the ids of its sentences."""
        for shard in self.shards:
            for index in range(shard.num_documents):
                yield shard.document(index)

    @property
    def num_documents(self) -> int:
        """Documents in all shards."""
        return self.manifest.num_documents

    @property
    def num_sentences(self) -> int:
        """Sentences in all shards."""
        return self.manifest.num_sentences

    @property
    def num_tokens(self) -> int:
        """Tokens in all shards."""
        return self.manifest.num_tokens

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary; every id is below it."""
        return self.manifest.vocab_size

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the tokenizer that made the store."""
        return self.manifest.tokenizer_fingerprint


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest type that holds every id."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a finished store."""
    path = folder / MANIFEST
    if not path.is_file():
        raise BertkitError(
            f"{folder} is no finished token store (no {MANIFEST}); run bertkit prepare to make or finish it"
        )
    try:
        version = json.loads(path.read_text(encoding="utf-8"))["format_version"]
        if version != FORMAT_VERSION:
            raise BertkitError(f"{path} has format {version}, this bertkit reads {FORMAT_VERSION}; {REMAKE}")
        return Manifest.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BertkitError(f"{path} cannot be read ({error}); {REMAKE}") from None


def check_tokenizer(manifest: Manifest, tokenizer: Tokenizer, folder: Path) -> None:
    """Refuse a tokenizer that would give other ids."""
    if manifest.tokenizer_fingerprint != tokenizer.fingerprint:
        raise BertkitError(
            f"{folder} was made with another tokenizer ({manifest.vocab_size} tokens, {manifest.tokenizer_fingerprint[:8]}) "
            f"than this one ({tokenizer.vocab_size}, {tokenizer.fingerprint[:8]}); take that one or prepare again"
        )


def write_manifest(folder: str | Path, manifest: Manifest) -> None:
    """Finish a store: everything that it names must be in place by now."""
    replace_text(Path(folder) / MANIFEST, manifest.to_json())


def shard_names(index: int) -> tuple[str, str, str]:
    """File names of a shard, in the order of KINDS."""
    tokens, sentences, documents = (f"shard-{index:05d}.{kind}.bin" for kind in KINDS)
    return tokens, sentences, documents


def _map_shard(folder: Path, manifest: Manifest, entry: ShardEntry) -> Shard:
    for file in entry.files():
        path = folder / file.name
        size = path.stat().st_size if path.is_file() else None
        if size != file.size:
            state = "missing" if size is None else f"{size} bytes long instead of {file.size}"
            raise BertkitError(f"{path} is {state}; {REMAKE}")
    tokens = map_array(folder / entry.tokens.name, manifest.token_dtype)
    return Shard(
        tokens, map_array(folder / entry.sentences.name, OFFSET), map_array(folder / entry.documents.name, OFFSET)
    )
