"""Shards written and mapped again, and everything that may be wrong with a store's files."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.corpus.store import (
    MANIFEST,
    OFFSET,
    Manifest,
    ShardEntry,
    TokenStore,
    shard_names,
    token_dtype,
    write_manifest,
)
from bertkit.corpus.store_files import ArrayWriter
from bertkit.errors import BertkitError
from bertkit.tokenizer import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
Documents = list[list[list[int]]]
SENTENCE = st.lists(st.integers(0, 299), min_size=1, max_size=5)
DOCUMENT = st.lists(SENTENCE, min_size=1, max_size=4)


def write_store(folder: Path, shards: list[Documents], vocab_size: int = 300, fingerprint: str = "print") -> TokenStore:
    """A store of these documents."""
    folder.mkdir(exist_ok=True)
    entries = []
    for index, documents in enumerate(shards):
        sentences = [sentence for document in documents for sentence in document]
        tokens = [token for sentence in sentences for token in sentence]
        offsets = [np.cumsum([0, *map(len, parts)]) for parts in (sentences, documents)]
        stored = []
        for name, array in zip(shard_names(index), [tokens, *offsets], strict=True):
            dtype = OFFSET if ".tokens." not in name else token_dtype(vocab_size)
            with ArrayWriter(folder / name, dtype) as file:
                file.write(np.asarray(array))
            stored.append(file.stored)
        entries.append(ShardEntry(len(documents), len(sentences), len(tokens), *stored))
    write_manifest(folder, Manifest(fingerprint, vocab_size, tuple(entries)))
    return TokenStore.open(folder)


def as_lists(store: TokenStore) -> Documents:
    """All documents of a store."""
    return [[sentence.tolist() for sentence in document] for document in store.documents()]


@settings(max_examples=25, deadline=None)
@given(shards=st.lists(st.lists(DOCUMENT, max_size=3), min_size=1, max_size=3))
def test_documents_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, shards: list[Documents]) -> None:
    store = write_store(tmp_path_factory.mktemp("store"), shards)
    store.verify()
    flat = [document for documents in shards for document in documents]
    assert as_lists(store) == flat
    assert store.num_documents == len(flat)
    assert store.num_sentences == sum(map(len, flat))
    assert store.num_tokens == sum(len(sentence) for document in flat for sentence in document)


def test_offsets_are_int64_and_ids_as_small_as_they_can_be(tmp_path: Path) -> None:
    shard = write_store(tmp_path / "small", [[[[1, 2], [3]]]]).shards[0]
    assert shard.tokens.dtype == np.uint16
    assert shard.sentence_offsets.dtype == shard.document_offsets.dtype == np.int64
    assert shard.sentence_offsets.tolist() == [0, 2, 3]
    assert shard.document_offsets.tolist() == [0, 2]
    large = write_store(tmp_path / "large", [[[[70_000]]]], vocab_size=70_001)
    assert large.shards[0].tokens.tolist() == [70_000]
    assert [token_dtype(size).itemsize for size in (2**16, 2**16 + 1)] == [2, 4]


def test_shards_cannot_be_written_to(tmp_path: Path) -> None:
    shard = write_store(tmp_path, [[[[1, 2]]]]).shards[0]
    with pytest.raises(ValueError, match="read-only"):
        shard.tokens[0] = 3


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_vocab([*SPECIAL, "a"], lowercase=True)
    other = Tokenizer.from_vocab([*SPECIAL, "b"], lowercase=True)
    write_store(tmp_path, [[[[5]]]], vocab_size=6, fingerprint=tokenizer.fingerprint)
    assert TokenStore.open(tmp_path, tokenizer).fingerprint == tokenizer.fingerprint
    with pytest.raises(BertkitError, match="made with another tokenizer") as refused:
        TokenStore.open(tmp_path, other)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["tokens", "sentences", "documents"])
def test_a_truncated_file_is_found_when_opening(tmp_path: Path, kind: str) -> None:
    write_store(tmp_path, [[[[1, 2, 3]]]])
    path = tmp_path / f"shard-00000.{kind}.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BertkitError, match=f"{kind}.bin is .* bytes long instead of"):
        TokenStore.open(tmp_path)
    path.unlink()
    with pytest.raises(BertkitError, match=f"{kind}.bin is missing"):
        TokenStore.open(tmp_path)


@pytest.mark.parametrize("kind", ["tokens", "sentences", "documents"])
def test_a_flipped_bit_is_found_when_verifying(tmp_path: Path, kind: str) -> None:
    write_store(tmp_path, [[[[1, 2, 3]]]])
    path = tmp_path / f"shard-00000.{kind}.bin"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    store = TokenStore.open(tmp_path)
    with pytest.raises(BertkitError, match=f"{kind}.bin is damaged"):
        store.verify()


def test_an_unfinished_store_and_a_broken_manifest_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="no finished token store"):
        TokenStore.open(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(BertkitError, match="cannot be read"):
        TokenStore.open(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    write_store(tmp_path, [[[[1]]]])
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(manifest | {"format_version": 99}))
    with pytest.raises(BertkitError, match="has format 99"):
        TokenStore.open(tmp_path)


LIMITED = """
import resource, sys
from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
resource.setrlimit(resource.RLIMIT_NOFILE, (64, int(sys.argv[2])))
try:
    print(TokenStore.open(sys.argv[1]).num_tokens)
except BertkitError as error:
    print(error)
"""


def test_a_store_of_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    write_store(tmp_path / "small", [[[[1, 2]]]] * 100)
    large = write_store(tmp_path / "large", [[[[1] * 5000]]])
    write_manifest(large.folder, replace(large.manifest, shards=large.manifest.shards * 100))

    def opened(name: str, hard_limit: int) -> str:
        command = [sys.executable, "-c", LIMITED, str(tmp_path / name), str(hard_limit)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert opened("small", 64) == "200"
    assert opened("large", 1024) == "500000"
    assert opened("large", 64).endswith("prepare the store from fewer, larger files, or raise `ulimit -n`")
