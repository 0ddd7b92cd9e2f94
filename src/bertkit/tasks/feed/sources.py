"""What a feed reads: the facts of a vocabulary that masking needs, and shards that travel to worker processes.

No torch and no tokenizer here: the loader's workers start without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.plan.layout import TokenShard

if TYPE_CHECKING:
    from bertkit.tokenizer import Tokenizer

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class FeedVocabulary:
    """What a feed must know of a tokenizer; V tokens."""

    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int
    is_special: NDArray[np.bool_]  # [V] never masked
    continues: NDArray[np.bool_]  # [V] goes on with the word before it
    ordinary_ids: Integers  # what random replacements are drawn from

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> FeedVocabulary:
        """Read it off."""
        is_special = np.isin(np.arange(tokenizer.vocab_size), sorted(tokenizer.special_ids))
        continues = np.array([token.startswith("##") for token in tokenizer.tokens], dtype=np.bool_)
        ids = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id
        return cls(*ids, is_special, continues & ~is_special, np.flatnonzero(~is_special))


@dataclass(frozen=True)
class MappedShard:
    """A shard on its way to another process: arrays of files go by name and are mapped again."""

    tokens: NDArray[Any]
    sentence_offsets: Integers
    document_offsets: Integers

    @classmethod
    def of(cls, shard: TokenShard) -> MappedShard:
        """Wrap a shard of any kind."""
        return cls(shard.tokens, shard.sentence_offsets, shard.document_offsets)

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = self.tokens, self.sentence_offsets, self.document_offsets
        return _open_shard, tuple(_describe(array) for array in arrays)


def _describe(array: NDArray[Any]) -> NDArray[Any] | tuple[Any, ...]:
    """A file's name and place for an array that is a whole mapped file, else the array."""
    owner = array if isinstance(array, np.memmap) else array.base
    if not isinstance(owner, np.memmap) or owner.nbytes != array.nbytes or owner.filename is None:
        return array
    return str(owner.filename), array.dtype.str, owner.offset, array.shape


def _open_shard(*parts: NDArray[Any] | tuple[Any, ...]) -> MappedShard:
    return MappedShard(*(part if isinstance(part, np.ndarray) else _map(*part) for part in parts))


def _map(path: str, dtype: str, offset: int, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.asarray(np.memmap(path, dtype, mode="r", offset=offset, shape=shape))
