"""Fixed vectors on MCL-WiC: the same word has the same vector in both sentences, so its sense cannot be told.

In: pairs of sentences with a marked word. Out: cosines of the row of the input embedding and of word2vec, and scores of
any cosines, also on bootstrap draws of the test words, which tell how much of a score is chance. Pairs of one form are
ranked by themselves, because how a word is spelt gives away some of its senses.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.inference.bert import Bert
from bertkit.studies.findings.word2vec import Vector, join_pieces, phrase_vector
from bertkit.studies.word_in_context import SensePair, choose_threshold, find_marked
from bertkit.tokenizer import Tokenizer

SPLITS = ("training", "dev", "test")
NUM_DRAWS, DECIMALS = 1000, 4
Cosines = NDArray[np.float32]


def marked_words(pairs: Sequence[SensePair], tokenizer: Tokenizer) -> list[tuple[list[str], list[str]]]:
    """The marked word on each side, in the form that the corpus has it (a hyphen makes two)."""
    special = set(tokenizer.special.all())
    texts = [text[start:end] for pair in pairs for text, (start, end) in zip(pair.sentences, pair.spans, strict=True)]
    words = [join_pieces(tokenizer.encode(text).tokens, special) or [text] for text in texts]
    return list(zip(words[::2], words[1::2], strict=True))


def same_form(words: Sequence[tuple[list[str], list[str]]]) -> NDArray[np.bool_]:
    """Whether both sides have the same word form."""
    return np.array([first == second for first, second in words], dtype=bool)


def word2vec_cosines(words: Sequence[tuple[list[str], list[str]]], vectors: Mapping[str, Vector]) -> Cosines:
    """[pairs]: 1 for the same form, whatever its vector; 0 where one of two forms has no vector."""
    found = []
    for first, second in words:
        left, right = phrase_vector(first, vectors), phrase_vector(second, vectors)
        found.append(1.0 if first == second else 0.0 if left is None or right is None else cosine(left, right))
    return np.array(found, dtype=np.float32)


def input_row_cosines(bert: Bert, pairs: Sequence[SensePair]) -> Cosines:
    """[pairs]: of the mean of the marked pieces' rows in the input embedding."""
    texts = [text for pair in pairs for text in pair.sentences]
    spans = [span for pair in pairs for span in pair.spans]
    table = bert.model.encoder.embeddings.token.weight.detach().float().cpu().numpy()
    marked = find_marked(bert.tokenizer, texts, spans, bert.config.max_positions)
    pieces = [sorted(encoding.ids[row] for row in rows) for encoding, rows in marked]  # one order, one sum
    rows = [table[ids].mean(axis=0) for ids in pieces]
    pairs_of = list(zip(pieces[::2], pieces[1::2], rows[::2], rows[1::2], strict=True))
    return np.array([1.0 if a == b else cosine(left, right) for a, b, left, right in pairs_of], dtype=np.float32)


def cosine(left: NDArray[Any], right: NDArray[Any]) -> float:
    """Of two vectors."""
    return float(left @ right / max(1e-12, float(np.linalg.norm(left) * np.linalg.norm(right))))


def sense_scores(
    cosines: Mapping[str, Cosines], truths: Mapping[str, NDArray[np.bool_]], same: NDArray[np.bool_]
) -> dict[str, float]:
    """Times 100: accuracy on the test pairs with the training pairs' threshold, and ranking on those of one form."""
    threshold, train = choose_threshold(cosines["training"], truths["training"])
    right = (cosines["test"] >= threshold) == truths["test"]
    found = {"accuracy": 100 * float(right.mean()), "training": 100 * train}
    ranked = ranking(cosines["test"][same], truths["test"][same])
    return found if ranked is None else {**found, "ranking": 100 * ranked}


def ranking(cosines: Cosines, truths: NDArray[np.bool_]) -> float | None:
    """How often a pair of one sense has the higher cosine than a pair of two; a tie is half. None: no such pairs."""
    wins = _wins(cosines, truths)
    return float(wins.mean()) if wins.size else None


def _wins(cosines: Cosines, truths: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[pairs of one sense, pairs of two]: 1 where the first has the higher cosine, half where they are equal."""
    one, two = cosines[truths][:, None], cosines[~truths][None]
    wins: NDArray[np.float64] = (one > two) + (one == two) / 2
    return wins


def draw_counts(words: Sequence[str]) -> NDArray[np.float64]:
    """[draws, pairs]: how often each pair is in each draw, always the same ones.

    Words are drawn and not pairs, because the pairs of a word share a sentence: they are right or wrong together.
    """
    names, word_of = np.unique(np.array(words), return_inverse=True)
    equal = np.full(len(names), 1 / len(names))
    return np.random.default_rng(0).multinomial(len(names), equal, size=NUM_DRAWS)[:, word_of].astype(np.float64)


def drawn_scores(
    cosines: Mapping[str, Cosines],
    truths: Mapping[str, NDArray[np.bool_]],
    same: NDArray[np.bool_],
    counts: NDArray[np.float64],
) -> dict[str, list[float]]:
    """As `sense_scores`, for every draw of the test pairs; the training pairs, and so the threshold, stay."""
    threshold, _ = choose_threshold(cosines["training"], truths["training"])
    right = (cosines["test"] >= threshold) == truths["test"]
    found = {"accuracy": counts @ right / counts.sum(axis=1)}
    truth = truths["test"][same]
    wins = _wins(cosines["test"][same], truth)
    if wins.size:
        one, two = counts[:, same][:, truth], counts[:, same][:, ~truth]
        ways = one.sum(axis=1) * two.sum(axis=1)
        won = ((one @ wins) * two).sum(axis=1)
        found["ranking"] = np.where(ways > 0, won / np.maximum(ways, 1), 0.5)  # nothing to rank: chance
    return {name: np.round(100 * values, DECIMALS).tolist() for name, values in found.items()}
