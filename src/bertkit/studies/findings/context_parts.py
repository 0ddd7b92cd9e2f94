"""The parts of the study of context: one model, or one training of word2vec, measured and stored.

In: a checkpoint or a store. Out: for the fixed vectors and for every layer, how well they tell senses in MCL-WiC, and the
cosines of "fair" in its sentences and "unbiased".
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError, LongTextWarning
from bertkit.inference.loading import load
from bertkit.inference.words import EXAMPLES, compare_words
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.findings.parts import GivenModel
from bertkit.studies.findings.senses import (
    NUM_DRAWS,
    SPLITS,
    Cosines,
    cosine,
    draw_counts,
    drawn_scores,
    input_row_cosines,
    marked_words,
    same_form,
    sense_scores,
    word2vec_cosines,
)
from bertkit.studies.findings.word2vec import Word2VecConfig, phrase_vector, store_sentences, train_word2vec
from bertkit.studies.jobs import Job
from bertkit.studies.study.request import StudyRequest, Text
from bertkit.studies.study.runs import PlannedRun, store_identity
from bertkit.studies.suite_parts import digest_of, write_json
from bertkit.studies.word_in_context import SensePair, read_sense_pairs, sense_cosines
from bertkit.tokenizer import Tokenizer
from bertkit.training.toml_text import to_plain

ROW, WORD2VEC = "input-row", "word2vec"
TASK = "mcl-wic-en"
WORD2VEC_SPEED = 150_000.0  # tokens a second of one core, at a guess


@dataclass(frozen=True)
class ContextOptions:
    """Settings of this study."""

    pairs: int | None = None  # of each set; None: all
    word2vec: Word2VecConfig = field(default_factory=Word2VecConfig)
    only: str = ""  # bert or word2vec: the other half is left for another machine, which shares parts/

    def __post_init__(self) -> None:
        if self.only not in ("", "bert", "word2vec"):
            raise BertkitError(f"options.only is bert or word2vec, not {self.only!r}; leave it out to do both")
        if self.pairs is not None and self.pairs < 2:
            raise BertkitError(f"options.pairs is {self.pairs}; give at least 2")

    def wants(self, part: "SensePart") -> bool:
        """Whether this part is to be done here."""
        return not self.only or (self.only == "word2vec") == (part.run is None)


@dataclass(frozen=True)
class SensePart:
    """One model, or one training of word2vec, with its stored figures."""

    said: str
    seed: int
    path: Path
    data: DataFolder
    options: ContextOptions
    run: PlannedRun | None = None  # None: word2vec
    text: Text | None = None
    device: str = "auto"

    @property
    def is_done(self) -> bool:
        """Whether it is stored."""
        return self.path.is_file()

    @property
    def seconds(self) -> float:
        """About how long it takes: reading pairs, or reading text several times."""
        if self.run is not None:
            return 10.0 if self.run.recipe.device == "cuda" else 30.0
        return 5.0 + self.options.word2vec.epochs * self.options.word2vec.most_tokens / WORD2VEC_SPEED

    def job(self) -> Job:
        """Measure it."""
        return Job(self.said, "bertkit.studies.findings.context_parts:measure_part", {"part": self}, self.seconds)


def model_parts(request: StudyRequest, options: ContextOptions, runs: Sequence[PlannedRun]) -> list[SensePart]:
    settings = [options.pairs, request.device]
    return [
        SensePart(
            f"senses by BERT, seed {run.seed}",
            run.seed,
            run.parts / f"senses-{digest_of([*settings, NUM_DRAWS] if isinstance(run, GivenModel) else settings)}.json",
            request.data,
            options,
            run,
            None,
            request.device,
        )
        for run in runs
    ]


def word2vec_parts(request: StudyRequest, options: ContextOptions, text: Text) -> list[SensePart]:
    settings = [options.pairs, to_plain(options.word2vec), store_identity(text.store)]
    folder = request.parts / f"word2vec-{digest_of(settings)}"
    return [
        SensePart(
            f"senses by word2vec, seed {seed}", seed, folder / f"seed-{seed}.json", request.data, options, None, text
        )
        for seed in range(request.scale.seeds)
    ]


def measure_part(part: SensePart, progress: Callable[[float], None]) -> dict[str, Any]:
    """Measure and store."""
    started = time.monotonic()
    with warnings.catch_warnings():
        # The window that holds the marked word is taken: nothing is lost.
        warnings.simplefilter("ignore", LongTextWarning)
        found = _by_word2vec(part, progress) if part.run is None else _by_model(part, progress)
    best = max(scores["senses"]["accuracy"] for scores in found.values())
    result = {"arms": found, "accuracy": best / 100, "seconds": time.monotonic() - started}
    write_json(part.path, result)
    return result


@dataclass(frozen=True)
class _Scoring:
    """Scores of any cosines of the same pairs."""

    truths: dict[str, NDArray[np.bool_]]
    same: NDArray[np.bool_]
    counts: NDArray[np.float64]

    def __call__(self, cosines: dict[str, Cosines]) -> dict[str, Any]:
        """The scores, and those of every draw."""
        scores = sense_scores(cosines, self.truths, self.same)
        return {"senses": scores, "draws": drawn_scores(cosines, self.truths, self.same, self.counts)}


def _by_model(part: SensePart, progress: Callable[[float], None]) -> dict[str, Any]:
    """The input row and every layer of one model."""
    assert part.run is not None
    bert = load(part.run.weights(), device=part.device)
    pairs, truths = _pairs(part)
    same = same_form(marked_words(pairs["test"], bert.tokenizer))
    score = _Scoring(truths, same, draw_counts([pair.word for pair in pairs["test"]]))
    total, seen = sum(map(len, pairs.values())), 0

    def count(num: int) -> None:
        nonlocal seen
        seen += num
        progress(0.95 * seen / total)

    layers = {split: sense_cosines(bert, pairs[split], count) for split in SPLITS}
    rows = {split: input_row_cosines(bert, pairs[split]) for split in SPLITS}
    fixed = compare_words(bert, layer=0).fixed.cosines
    found: dict[str, Any] = {ROW: {**score(rows), "fair": fixed}}
    for layer in range(bert.config.num_layers + 1):
        cosines = {split: layers[split][:, layer] for split in SPLITS}
        fair = compare_words(bert, layer=layer).contextual.cosines
        found[layer_name(layer)] = {**score(cosines), "fair": fair}
    return found


def _by_word2vec(part: SensePart, progress: Callable[[float], None]) -> dict[str, Any]:
    """word2vec, trained on the models' text."""
    assert part.text is not None
    tokenizer = Tokenizer.load(part.text.tokenizer)
    store = TokenStore.open(part.text.store, tokenizer)
    config = part.options.word2vec
    sentences = list(store_sentences(store, tokenizer, config.most_tokens))
    progress(0.2)
    pairs, truths = _pairs(part)
    words = {split: marked_words(pairs[split], tokenizer) for split in SPLITS}
    uses = [marked_words([_as_pair(use.sentence, use.word)], tokenizer)[0][0] for use in EXAMPLES]
    wanted = {word for found in words.values() for pair in found for side in pair for word in side}
    vectors = train_word2vec(sentences, config, part.seed, wanted | {word for use in uses for word in use})
    progress(0.9)
    cosines = {split: word2vec_cosines(words[split], vectors) for split in SPLITS}
    counts = draw_counts([pair.word for pair in pairs["test"]])
    scores = _Scoring(truths, same_form(words["test"]), counts)(cosines)
    unknown = sum(phrase_vector(side, vectors) is None for pair in words["test"] for side in pair)
    return {WORD2VEC: {**scores, "fair": _fair(uses, vectors), "unknown": unknown / (2 * len(words["test"]))}}


def _as_pair(sentence: str, word: str) -> SensePair:
    start = sentence.lower().index(word)
    return SensePair((sentence, sentence), ((start, start + len(word)),) * 2, True)


def _fair(uses: Sequence[list[str]], vectors: dict[str, Any]) -> list[list[float]] | None:
    """The cosines of the three uses; None where a word is too rare to have a vector."""
    found = [phrase_vector(use, vectors) for use in uses]
    known = [vector for vector in found if vector is not None]
    if len(known) < len(found):
        return None
    return [[cosine(left, right) for right in known] for left in known]


def _pairs(part: SensePart) -> tuple[dict[str, list[SensePair]], dict[str, Any]]:
    folder = part.data.task_folder(TASK)
    pairs = {split: read_sense_pairs(folder, split, part.options.pairs) for split in SPLITS}
    return pairs, {split: np.array([pair.is_same for pair in found]) for split, found in pairs.items()}


def layer_name(layer: int) -> str:
    """layer-3."""
    return f"layer-{layer}"
