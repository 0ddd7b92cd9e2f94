"""Batches on a model: each kind of work as one call of `Bert`, so that answers are those of offline use.

In: a Bert, a kind, the options that a batch shares, and one input an item. Out: for each input an array, a JSON text
or a refusal. Where a merged call is refused, every input runs by itself, and only the guilty one is refused.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from bertkit.errors import BertkitError, LongTextError
from bertkit.inference.bert import Bert
from bertkit.inference.classification import limit_of
from bertkit.inference.embedding import normalized
from bertkit.inference.words import Occurrence, compare_words
from bertkit.serve.logs import where
from bertkit.tasks.answering.spans import AnswerPrediction
from bertkit.tasks.classification.task import SCORE, ClassificationTask, ClassPrediction, classification_of
from bertkit.tasks.predicting import predict_examples
from bertkit.tasks.reading.examples import TextExample

Array = NDArray[np.float32]
Options = dict[str, Any]
DECIMALS = 6  # of attention weights as text


@dataclass(frozen=True)
class Refused:
    """Why an input has no result: bad input ("validation", "too_long"), or something that should not be ("backend")."""

    message: str
    kind: str = "validation"


@dataclass(frozen=True)
class Text:
    """A result that is already JSON, and how many tokens it was made without."""

    json: str
    num_cut: int = 0


Result = Array | Text | Refused


def run_batch(bert: Bert, kind: str, options: Options, inputs: Sequence[Any]) -> list[Result]:
    """One result an input."""
    try:
        return list(KINDS[kind](bert, inputs, options))
    except Exception as error:
        if len(inputs) == 1:
            return [_refused(error)]
    return [run_batch(bert, kind, options, [one])[0] for one in inputs]


def _refused(error: Exception) -> Refused:
    if isinstance(error, BertkitError):
        return Refused(str(error), "too_long" if isinstance(error, LongTextError) else "validation")
    return Refused(where(error), "backend")


def _embed(bert: Bert, inputs: Sequence[Any], options: Options) -> Sequence[Result]:
    vectors = _finite(bert.embed([one["text"] for one in inputs], normalize=False, long=options["long"]))
    return [_finish(vector, one) for vector, one in zip(vectors, inputs, strict=True)]


def _finish(vector: Array, one: dict[str, Any]) -> Array:
    kept: Array = vector[: one["dimensions"]]
    return normalized(kept[None])[0] if one["normalize"] else kept


def _embed_all(bert: Bert, inputs: Sequence[Any], options: Options) -> Sequence[Result]:
    encoded = (bert.encode(text, long=options["long"]) for text in inputs)
    return [_numbers(found.vectors) for found in encoded]


def _finite(numbers: Any) -> Array:
    found = np.asarray(numbers, np.float32)
    if not np.isfinite(found).all():
        raise BertkitError("this model gives numbers that are not finite; its weights are broken")
    return found


def _numbers(numbers: Any) -> Text:
    return Text(to_json(_finite(numbers).tolist()).decode())


@dataclass(frozen=True)
class RawClassification(ClassificationTask):
    """Scores as the head says them, in the place of probabilities."""

    def predict(self, logits_C: NDArray[np.float32]) -> ClassPrediction:
        """Nothing is turned into probabilities."""
        raw = dict(zip(self.labels, map(float, logits_C), strict=True))
        return replace(super().predict(logits_C), probabilities=raw)


def _predict(bert: Bert, inputs: Sequence[Any], options: Options) -> Sequence[Result]:
    texts = [(text, pair) for text, pair in inputs]
    if not options["raw"]:
        return [_scores(found) for found in bert.predict(texts, long=options["long"])]
    task = RawClassification(**vars(classification_of(bert.config, bert.stored.settings)))
    examples = (TextExample(*text) for text in texts)
    limit = limit_of(bert.model, bert.stored, options["long"])
    return [
        _scores(scored.prediction) for scored in predict_examples(task, bert.model, bert.tokenizer, examples, limit)
    ]


def _scores(found: ClassPrediction) -> Text:
    spread = found.probabilities or {SCORE: float(found.label)}  # type: ignore[arg-type]  # a number without classes
    ranked = sorted(spread.items(), key=lambda pair: -pair[1])
    return _text([{"score": score, "label": label} for label, score in ranked], found.num_cut)


def _fill_mask(bert: Bert, inputs: Sequence[Any], options: Options) -> Sequence[Result]:
    filled = bert.fill_mask(inputs, top_k=options["top_k"], candidates=options["candidates"])
    return [_text([asdict(mask) for mask in masks]) for masks in filled]


def _next_sentence(bert: Bert, inputs: Sequence[Any], options: Options) -> Sequence[Result]:
    found = bert.next_sentences([(a, b) for a, b in inputs])
    return [_text({"probability": float(probability)}) for probability in found]


def _answer(bert: Bert, inputs: Sequence[Any], options: Options) -> Sequence[Result]:
    asked = {name: value for name, value in options.items() if value is not None}
    return [_answer_text(found) for found in bert.answer_stream([(a, b) for a, b in inputs], **asked)]


def _answer_text(found: AnswerPrediction) -> Text:
    return _text(asdict(found), found.num_cut)


def _entities(bert: Bert, inputs: Sequence[Any], options: Options) -> Sequence[Result]:
    results = []
    for found in bert.tag_stream(inputs):
        entities = [
            {"kind": e.kind, "text": e.text, "start": e.start, "end": e.end, "confidence": e.confidence}
            for e in found.entities
        ]
        words = [
            {"text": word, "start": start, "end": end, "tag": tag}
            for word, (start, end), tag in zip(found.words, found.spans, found.tags, strict=True)
        ]
        results.append(
            _text({"entities": entities, "words": words, "num_windows": found.num_windows}, num_cut=found.num_cut)
        )
    return results


def _words(bert: Bert, inputs: Sequence[Any], options: Options) -> Sequence[Result]:
    results = []
    for uses in inputs:
        found = compare_words(bert, [Occurrence(use["word"], use["text"]) for use in uses], layer=options["layer"])
        spaces = {
            name: {"name": space.name, "cosines": space.cosines, **asdict(space.map)}
            for name, space in (("fixed", found.fixed), ("contextual", found.contextual))
        }
        told = [
            {"word": use.word, "text": use.sentence, "start": use.start, "end": use.end, "pieces": use.pieces}
            for use in found.uses
        ]
        results.append(_text({"uses": told, **spaces, "notes": found.notes}))
    return results


def _attention(bert: Bert, inputs: Sequence[Any], options: Options) -> Sequence[Result]:
    results = []
    for a, b in inputs:
        found = bert.attention(a, b)
        layers = _chosen(options["layer"], bert.config.num_layers, "layer")
        heads = _chosen(options["head"], bert.config.num_heads, "head")
        places = np.ix_(*([number - 1 for number in numbers] for numbers in (layers, heads)))
        weights = _finite(found.weights[places]).astype(np.float64).round(DECIMALS)
        tokens = [
            {"text": token, "segment": segment} for token, segment in zip(found.tokens, found.segment_ids, strict=True)
        ]
        told = {"tokens": tokens, "layers": layers, "heads": heads, "weights": weights.tolist()}
        results.append(Text(to_json(told).decode()))
    return results


def _chosen(number: int | None, count: int, what: str) -> list[int]:
    """Layers or heads, counted from 1 as `bertkit inspect` and the page count them."""
    if number is None:
        return list(range(1, count + 1))
    if number > count:
        raise BertkitError(f"there is no {what} {number}; this model has {what}s 1 to {count}")
    return [number]


def _text(value: Any, num_cut: int = 0) -> Text:
    return Text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False), num_cut)


Run = Callable[[Bert, Sequence[Any], Options], Sequence[Result]]
KINDS: dict[str, Run] = {
    "embed": _embed,
    "embed_all": _embed_all,
    "predict": _predict,
    "fill_mask": _fill_mask,
    "next_sentence": _next_sentence,
    "answer": _answer,
    "entities": _entities,
    "words": _words,
    "attention": _attention,
}
