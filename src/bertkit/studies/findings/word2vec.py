"""word2vec on the corpus that BERT was trained on: one vector a word, whatever stands around it (gensim, an extra).

In: a token store and its tokenizer; pieces are joined to words again. Out: vectors by word, the same for the same seed.
The corpus is bounded by taking documents evenly, so that a part stands for the whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.tokenizer import Tokenizer

Vector = NDArray[np.float32]
MISSING = "gensim is not installed, and word2vec is trained with it: pip install 'bertkit[studies]'"


@dataclass(frozen=True)
class Word2VecConfig:
    """Skip-gram with negative sampling, as in Mikolov et al. (2013)."""

    dimensions: int = 128
    window: int = 5
    negative: int = 5
    epochs: int = 3
    least_count: int = 5
    most_tokens: int = 20_000_000  # of the store that are read

    def __post_init__(self) -> None:
        if min(self.dimensions, self.window, self.negative, self.epochs, self.least_count, self.most_tokens) < 1:
            raise BertkitError("word2vec: dimensions, window, negative, epochs, counts and tokens are at least 1")


def join_pieces(pieces: Sequence[str], special: frozenset[str] | set[str]) -> list[str]:
    """Words of WordPiece's pieces; special tokens are no words, and nothing is joined across them."""
    words: list[str] = []
    is_open = False
    for piece in pieces:
        if piece in special:
            is_open = False
        elif piece.startswith("##") and is_open:
            words[-1] += piece[2:]
        else:
            words.append(piece)
            is_open = True
    return words


def store_sentences(store: TokenStore, tokenizer: Tokenizer, most_tokens: int) -> Iterator[list[str]]:
    """Sentences of words, of a share of the documents, spread evenly."""
    share = min(1.0, most_tokens / max(1, store.num_tokens))
    tokens, special = tokenizer.tokens, set(tokenizer.special.all())
    for number, document in enumerate(store.documents()):
        if int((number + 1) * share) > int(number * share):
            for sentence in document:
                yield join_pieces([tokens[index] for index in sentence.tolist()], special)


def train_word2vec(
    sentences: Sequence[Sequence[str]], config: Word2VecConfig, seed: int = 0, wanted: set[str] | None = None
) -> dict[str, Vector]:
    """The vectors of all words that are frequent enough, or of those wanted; one thread, so that it is repeatable."""
    Word2Vec = _gensim()
    try:
        model = Word2Vec(
            sentences=sentences,
            vector_size=config.dimensions,
            window=config.window,
            negative=config.negative,
            min_count=config.least_count,
            epochs=config.epochs,
            sg=1,
            seed=seed + 1,  # gensim takes 0 for none
            workers=1,
        )
    except RuntimeError:  # gensim's word for an empty vocabulary
        raise BertkitError(f"no word occurs {config.least_count} times in this text; give more text") from None
    chosen = model.wv.key_to_index if wanted is None else wanted & model.wv.key_to_index.keys()
    return {word: np.array(model.wv[word], dtype=np.float32) for word in chosen}


def _gensim() -> Any:
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise BertkitError(MISSING) from None
    return Word2Vec


def has_gensim() -> bool:
    """Whether word2vec can be trained here."""
    from importlib.util import find_spec

    return find_spec("gensim") is not None


def phrase_vector(words: Sequence[str], vectors: Mapping[str, Vector]) -> Vector | None:
    """The mean of the words that have a vector; None where none has."""
    found = [vectors[word] for word in words if word in vectors]
    return np.mean(found, axis=0, dtype=np.float32) if found else None
