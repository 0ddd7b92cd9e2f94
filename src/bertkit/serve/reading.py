"""A request's texts, tokenized off the event loop: how long each is, whether it fits, and what a worker gets.

In: a served model and what the request said. Out: Prepared, one input an item with its tokens; or a Refusal. What is
cut or read in windows is counted here, so that the answer can say it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from bertkit.serve.models import ServedModel
from bertkit.serve.refusals import Refusal, invalid, too_large
from bertkit.tokenizer import Encoding, Tokenizer

MAX_NUMBERS = 4_000_000  # in one answer: they become tens of megabytes of JSON, which the event loop passes on
MAX_QUESTION = 64  # tokens of a question that are read


@dataclass(frozen=True)
class Prepared:
    """Work for the queue."""

    options: dict[str, Any]
    inputs: list[Any]
    lengths: list[int]  # tokens of each input, special tokens included
    num_truncated: int = 0  # texts that are cut, as the request asked
    num_windowed: int = 0  # texts that are read in several windows


def _text_of(tokenizer: Tokenizer, given: str | Sequence[int]) -> str:
    """A text as it is, or the one that has these token ids; what is none, as ids of another vocabulary, is refused."""
    if isinstance(given, str):
        return given
    text = tokenizer.decode(given[1:-1], skip_special=False)
    if list(given) != [tokenizer.cls_id, *tokenizer.encode_ids([text])[0], tokenizer.sep_id]:
        raise invalid(
            "the token ids are no text of this model, from [CLS] to [SEP]; send the text, or ids of /tokenize"
        )
    return text


def prepare_embed(
    model: ServedModel,
    given: Sequence[str | Sequence[int]],
    truncate: bool | None,
    left: bool,
    normalize: bool,
    dimensions: int | None,
) -> Prepared:
    """Sentence vectors; a long text is read in windows unless the request says otherwise."""
    if dimensions is not None and dimensions > model.facts.hidden_size:
        raise invalid(f"dimensions is {dimensions} and this model's vectors have {model.facts.hidden_size}")
    limit = model.facts.embed_limit
    texts, lengths, num_long = _fit(model.tokenizer, given, limit, truncate, left)
    windows = 0 if truncate else num_long
    # Every window has its own [CLS] and [SEP].
    lengths = [length + 2 * ((length - 3) // (limit - 2)) if length > limit else length for length in lengths]
    inputs = [{"text": text, "normalize": normalize, "dimensions": dimensions} for text in texts]
    long = "truncate" if truncate and num_long else "window"
    return Prepared({"long": long}, inputs, lengths, num_long if truncate else 0, windows)


def prepare_embed_all(
    model: ServedModel, given: Sequence[str | Sequence[int]], truncate: bool | None, left: bool
) -> Prepared:
    """Token vectors; a long text is refused unless it may be cut."""
    texts, lengths, num_long = _fit(model.tokenizer, given, model.facts.max_positions, bool(truncate), left)
    if sum(lengths) * (width := model.facts.hidden_size) > MAX_NUMBERS:
        raise too_large(
            f"vectors of {sum(lengths)} tokens are too much for one answer; send {MAX_NUMBERS // width} at most"
        )
    return Prepared({"long": "truncate" if num_long else "error"}, list(texts), lengths, num_long)


def _fit(
    tokenizer: Tokenizer, given: Sequence[str | Sequence[int]], limit: int, truncate: bool | None, left: bool
) -> tuple[Sequence[str], list[int], int]:
    """The texts, their tokens, and how many are long: refused, cut on the left here (on the right by the worker)."""
    texts = [_text_of(tokenizer, one) for one in given]
    lengths = [len(ids) + 2 for ids in tokenizer.encode_ids(texts)]
    num_long = sum(length > limit for length in lengths)
    if num_long and truncate is False:
        raise _too_long(lengths, limit)
    if num_long and truncate:
        if left:
            texts = [
                cut_left(tokenizer, text, limit - 2) if length > limit else text
                for text, length in zip(texts, lengths, strict=True)
            ]
        lengths = [min(length, limit) for length in lengths]
    return texts, lengths, num_long


def _too_long(lengths: Sequence[int], limit: int) -> Refusal:
    return too_large(f"inputs must have at most {limit} tokens and one has {max(lengths)}; shorten, or set truncate")


def cut_left(tokenizer: Tokenizer, text: str, room: int) -> str:
    """The end of a text that has at most so many tokens, from the start of a word (unless one word is longer)."""
    ((encoding,),) = tokenizer.encode_batch([text])
    offsets, words = encoding.offsets[1:-1], encoding.word_ids[1:-1]
    first = len(offsets) - room
    whole = next((i for i in range(first, len(words)) if words[i] != words[i - 1]), first)
    return text[offsets[whole][0] :]


def prepare_predict(
    model: ServedModel, texts: Sequence[tuple[str, str | None]], truncate: bool | None, left: bool, raw: bool
) -> Prepared:
    """Labels of texts and pairs; long ones as in fine-tuning unless the request says otherwise."""
    if any(pair is not None for _, pair in texts) and not model.facts.takes_pairs:
        raise invalid(f"the model {model.name} takes single texts and no pairs")
    limit = model.facts.task_limit
    policy = {None: model.facts.task_long, True: "truncate", False: "error"}[truncate]
    lengths = _pair_lengths(model.tokenizer, texts)
    num_long = sum(length > limit for length in lengths)
    if num_long and policy == "error":
        raise _too_long(lengths, limit)
    if num_long and policy == "truncate":
        if left:
            texts = [
                _cut_single(model.tokenizer, text, limit - 2) if length > limit else text
                for text, length in zip(texts, lengths, strict=True)
            ]
        lengths = [min(length, limit) for length in lengths]
    cut, windows = (num_long, 0) if policy == "truncate" else (0, num_long)
    return Prepared({"long": policy, "raw": raw}, [list(text) for text in texts], lengths, cut, windows)


def _cut_single(tokenizer: Tokenizer, text: tuple[str, str | None], room: int) -> tuple[str, str | None]:
    if text[1] is not None:
        raise invalid("truncation_direction Left is for single texts; cut pairs on the right")
    return cut_left(tokenizer, text[0], room), None


def _pair_lengths(tokenizer: Tokenizer, texts: Sequence[tuple[str, str | None]]) -> list[int]:
    flat = [part for text in texts for part in text if part is not None]
    counts = iter([len(ids) for ids in tokenizer.encode_ids(flat)])
    return [sum(next(counts) + 1 for part in text if part is not None) + 1 for text in texts]


def prepare_fill_mask(model: ServedModel, texts: Sequence[str], top_k: int, candidates: list[str] | None) -> Prepared:
    """Texts with blanks; one without is refused before it can hold up others."""
    encoded = model.tokenizer.encode_ids(texts)
    if any(model.tokenizer.mask_id not in ids for ids in encoded):
        raise invalid(f"an input has no {model.tokenizer.special.mask}; write it where a word is to be filled in")
    lengths = [len(ids) + 2 for ids in encoded]
    check_whole(model, lengths)
    ranked = None if candidates is None else tuple(candidates)
    return Prepared({"top_k": top_k, "candidates": ranked}, list(texts), lengths)


def prepare_next_sentence(model: ServedModel, pairs: Sequence[Sequence[str]]) -> Prepared:
    """Pairs of texts."""
    lengths = _pair_lengths(model.tokenizer, [(a, b) for a, b in pairs])
    check_whole(model, lengths)
    return Prepared({}, [list(pair) for pair in pairs], lengths)


def prepare_answer(model: ServedModel, question: str, context: str, options: dict[str, Any]) -> Prepared:
    """A question with its context, in windows where that is long."""
    asked, told = (len(ids) for ids in model.tokenizer.encode_ids([question, context]))
    asked = min(asked, MAX_QUESTION, (model.facts.task_limit - 3) // 2)
    room = max(1, model.facts.task_limit - asked - 3)
    windows = -(-max(1, told) // max(1, room - room // 4)) if told > room else 1
    return Prepared(
        options, [[question, context]], [told + windows * (asked + 3)], 0, int(windows > 1 and _windows(model))
    )


def prepare_entities(model: ServedModel, texts: Sequence[str]) -> Prepared:
    """Texts whose words are tagged, in windows where they are long."""
    lengths = [len(ids) + 2 for ids in model.tokenizer.encode_ids(texts)]
    num_long = sum(length > model.facts.task_limit for length in lengths)
    return Prepared({}, list(texts), lengths, 0, num_long if _windows(model) else 0)


def _windows(model: ServedModel) -> bool:
    """Whether long texts are read in windows, as fine-tuning chose; what is cut instead is told by the worker."""
    return model.facts.task_long == "window"


def prepare_words(model: ServedModel, uses: Sequence[dict[str, str]], layer: int | None) -> Prepared:
    """Uses of words, each in its sentence."""
    lengths = [len(ids) + 2 for ids in model.tokenizer.encode_ids([use["text"] for use in uses])]
    check_whole(model, lengths)
    return Prepared({"layer": layer}, [list(uses)], [sum(lengths)])


def prepare_attention(model: ServedModel, a: str, b: str | None, layer: int | None, head: int | None) -> Prepared:
    """A text or pair, few enough weights to be told."""
    if b is not None and not model.facts.takes_pairs:
        raise invalid(f"the model {model.name} takes single texts and no pairs")
    lengths = _pair_lengths(model.tokenizer, [(a, b)])
    check_whole(model, lengths)
    maps = (model.facts.num_layers if layer is None else 1) * (model.facts.num_heads if head is None else 1)
    if maps * lengths[0] ** 2 > MAX_NUMBERS:
        raise too_large(
            f"{lengths[0]} tokens in {maps} heads are too many weights for one answer; choose a layer or head"
        )
    return Prepared({"layer": layer, "head": head}, [[a, b]], lengths)


def check_whole(model: ServedModel, lengths: Sequence[int]) -> None:
    """Refuse texts that must be read whole and do not fit."""
    if max(lengths) > (limit := model.facts.max_positions):
        raise too_large(f"inputs must have at most {limit} tokens and one has {max(lengths)}; shorten it")


def prepare_tokenize(model: ServedModel, texts: Sequence[str]) -> Prepared:
    """How many tokens there will be."""
    return Prepared({}, list(texts), [len(ids) + 2 for ids in model.tokenizer.encode_ids(texts)])


def tokenize(model: ServedModel, texts: Sequence[str], special: bool) -> bytes:
    """Every token with its characters, as JSON."""
    encodings = (encoding for (encoding,) in model.tokenizer.encode_batch(texts))
    told = [_tokens(model.tokenizer, *pair, special) for pair in zip(texts, encodings, strict=True)]
    return to_json(told)


def _tokens(tokenizer: Tokenizer, text: str, encoding: Encoding, special: bool) -> list[dict[str, Any]]:
    told = []
    rows = zip(encoding.ids, encoding.tokens, encoding.text_ids, encoding.offsets, strict=True)
    for token_id, token, text_id, (start, stop) in rows:
        if text_id is not None:
            is_special = token_id in tokenizer.special_ids
            told.append({"id": token_id, "text": text[start:stop], "special": is_special, "start": start, "stop": stop})
        elif special:
            told.append({"id": token_id, "text": token, "special": True, "start": None, "stop": None})
    return told
