"""One vector a word, or one a use: a word's fixed vector beside its contextual ones (section 5.3 of the paper).

In: words, each in a sentence. Out: for every use its fixed vector (the row of the input embedding, or of a word2vec
file) and its contextual one (a layer, or the upper third averaged), their cosines, and a map of each in two dimensions.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.embedding import cosine_matrix
from bertkit.inference.encoding import EncodedText, Span, word_vectors
from bertkit.inference.layers import LayerChoice, check_layer, read_layer
from bertkit.inference.word2vec import read_word2vec

Vectors = NDArray[np.float32]
MOST_AVERAGED = 4  # layers


@dataclass(frozen=True)
class Occurrence:
    """A word as it stands in a sentence."""

    word: str
    sentence: str


EXAMPLES = (
    Occurrence("fair", "He didn't receive fair treatment"),
    Occurrence("fair", "Fun fair in New York city this summer"),
    Occurrence("unbiased", "Tom deserves unbiased judgement"),
)


@dataclass(frozen=True)
class Use:
    """Where an occurrence was found, and the pieces that the model reads there."""

    word: str
    sentence: str
    start: int
    end: int
    pieces: list[str]


@dataclass(frozen=True)
class PlaneMap:
    """Vectors seen from their two most telling directions (principal components)."""

    points: list[list[float]]  # [N][2]
    shares: list[float]  # of the variance that each direction holds


@dataclass(frozen=True)
class Space:
    """One kind of vector: what it is, the cosine of every two uses, and the map."""

    name: str
    cosines: list[list[float]]  # [N][N]
    map: PlaneMap


@dataclass(frozen=True)
class WordComparison:
    """Uses of words, by fixed vectors and by contextual ones."""

    uses: list[Use]
    fixed: Space
    contextual: Space
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings."""
        return asdict(self)


def compare_words(
    bert: Bert,
    occurrences: Sequence[Occurrence] = EXAMPLES,
    *,
    layer: int | None = None,
    word2vec: Path | None = None,
) -> WordComparison:
    """Each word's fixed vector beside its contextual ones; `layer` as in `word_vectors`, by default the upper third."""
    if not occurrences:
        raise BertkitError('no words to compare; give some as "word=a sentence with the word"')
    choice = _layer_choice(bert, layer)
    encoded = [bert.encode(occurrence.sentence) for occurrence in occurrences]
    spans = [_find(occurrence) for occurrence in occurrences]
    uses = [_use(occurrence, text, span) for occurrence, text, span in zip(occurrences, encoded, spans, strict=True)]
    contextual = [word_vectors(text, choice, [span])[0].vector for text, span in zip(encoded, spans, strict=True)]
    fixed = _input_rows(bert, uses) if word2vec is None else _file_rows(word2vec, uses)
    return WordComparison(
        uses=uses,
        fixed=_space(_fixed_name(word2vec), np.stack(fixed)),
        contextual=_space(_contextual_name(bert, choice), np.stack(contextual)),
        notes=_notes(bert, uses, word2vec),
    )


def parse_occurrence(text: str) -> Occurrence:
    """From the form "word=a sentence with the word"."""
    word, equals, sentence = (part.strip() for part in text.partition("="))
    if not (word and equals and sentence):
        raise BertkitError(f'cannot read {text!r}; write it as "fair=He didn\'t receive fair treatment"')
    return Occurrence(word, sentence)


def project(vectors: Vectors) -> PlaneMap:
    """Principal components: the two directions in which the vectors differ most; signs fixed, so repeatable."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    left, scales, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(vectors), 2))
    found = min(2, len(scales))
    points[:, :found] = left[:, :found] * scales[:found]
    points *= np.where(points[np.abs(points).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    variance = np.zeros(2)
    variance[:found] = scales[:found] ** 2 / max(float((scales**2).sum()), np.finfo(np.float64).tiny)
    return PlaneMap(points.tolist(), variance.tolist())


def _layer_choice(bert: Bert, layer: int | None) -> LayerChoice:
    """The upper third, but no more than the paper's four layers: lower ones know more of spelling than of sense."""
    if layer is None:
        num = min(MOST_AVERAGED, bert.config.num_layers // 3)
        return f"mean-last-{num}" if num > 1 else -1
    check_layer(layer, bert.config.num_layers)
    return layer


def _pattern(word: str) -> re.Pattern[str]:
    """The word by itself: no letter or digit may touch it (unless it begins or ends with something else)."""
    before = r"(?<!\w)" if re.match(r"\w", word) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", word) else ""
    return re.compile(before + re.escape(word) + after, re.IGNORECASE)


def _find(occurrence: Occurrence) -> Span:
    found = _pattern(occurrence.word).search(occurrence.sentence)
    if found is None:
        raise BertkitError(
            f"{occurrence.word!r} does not occur in {occurrence.sentence!r}; give a sentence that has it"
        )
    return found.span()


def _use(occurrence: Occurrence, text: EncodedText, span: Span) -> Use:
    rows = zip(text.tokens, text.encoding.text_ids, text.offsets, strict=True)
    pieces = [token for token, of, (start, end) in rows if of == 0 and start < span[1] and end > span[0]]
    if not pieces:
        raise BertkitError(f"the tokenizer leaves nothing of {occurrence.word!r}; choose another word")
    return Use(occurrence.word, occurrence.sentence, *span, pieces)


def _input_rows(bert: Bert, uses: Sequence[Use]) -> list[Vectors]:
    table = bert.model.encoder.embeddings.token.weight.detach()
    ids = [[bert.tokenizer.id(piece) for piece in use.pieces] for use in uses]
    return [table[rows].float().mean(dim=0).cpu().numpy() for rows in ids]


def _file_rows(path: Path, uses: Sequence[Use]) -> list[Vectors]:
    wanted = {form for use in uses for form in (use.word, use.word.lower())}
    found = read_word2vec(path, wanted)
    for use in uses:
        if use.word not in found and use.word.lower() not in found:
            raise BertkitError(f"{path} has no vector for {use.word!r}; choose words that it has")
    return [found.get(use.word, found.get(use.word.lower(), np.zeros(0, np.float32))) for use in uses]


def _space(name: str, vectors: Vectors) -> Space:
    return Space(name, np.clip(cosine_matrix(vectors, vectors), -1, 1).astype(float).tolist(), project(vectors))


def _fixed_name(word2vec: Path | None) -> str:
    return "the word's row in the input embedding" if word2vec is None else f"the word's row in {word2vec.name}"


def _contextual_name(bert: Bert, choice: LayerChoice) -> str:
    last = bert.config.num_layers
    if isinstance(choice, str):
        return f"layers {last - read_layer(choice).num_joined(last) + 1} to {last} of {last}, averaged"
    number = choice % (last + 1)
    return "the input embeddings after LayerNorm (layer 0)" if number == 0 else f"layer {number} of {last}"


def _notes(bert: Bert, uses: Sequence[Use], word2vec: Path | None) -> list[str]:
    notes = []
    for use in {(use.word, use.sentence): use for use in uses}.values():
        if (count := len(_pattern(use.word).findall(use.sentence))) > 1:
            notes.append(f"{use.word!r} occurs {count} times in {use.sentence!r}; the first is taken.")
        if bert.tokenizer.special.unk in use.pieces:
            notes.append(f"{use.word!r} is not fully in the vocabulary: part of it is read as [UNK].")
    for word, pieces in {use.word: use.pieces for use in uses if len(use.pieces) > 1}.items():
        subject = "its contextual vector is" if word2vec else "both its vectors are"
        notes.append(f"{word!r} is read as {len(pieces)} pieces ({' '.join(pieces)}); {subject} the mean over them.")
    return notes
