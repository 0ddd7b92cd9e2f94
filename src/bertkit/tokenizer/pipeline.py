"""The pipeline normalizer -> pre-tokenizer -> WordPiece, held as the dictionary that tokenizer.json stores.

What enters: the tokens of a vocabulary, or the dictionary out of somebody's tokenizer.json.
What leaves: a complete and checked dictionary, and the `tokenizers` object that runs it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import tokenizers as tk

from bertkit.errors import BertkitError
from bertkit.tokenizer.encoding import SpecialTokens

Spec = dict[str, Any]
STANDARD_MODEL = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}


def new_spec(tokens: Sequence[str], source: str) -> Spec:
    """BERT's pipeline over these tokens, each with its place in the list as its id."""
    seen: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if not token or "\n" in token:
            raise BertkitError(f"{source}: token {index} is empty or has a line break; name it [unused{index}]")
        if token in seen:
            raise BertkitError(
                f"{source} has {token!r} twice, as ids {seen[token]} and {index} (lines {seen[token] + 1} and {index + 1}); "
                f"rename the first to [unused{seen[token]}], which keeps all other ids"
            )
        seen[token] = index
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": False,
    }
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", **STANDARD_MODEL, "vocab": seen},
    }


def complete_spec(spec: Spec, special: SpecialTokens, source: str) -> Spec:
    """Check somebody's dictionary and make it ours: no holes in the ids, special tokens marked, no cutting, no padding."""
    model, added = check_shape(spec, source)
    vocab = fill_holes(model["vocab"], added, source)
    known = {token["content"] for token in added}
    missing = [token for token in special.all() if token not in vocab and token not in known]
    if missing:
        raise BertkitError(
            f"{source} has no {', '.join(missing)}, so it is no BERT vocabulary; if its special tokens have other names, "
            "give them in tokenizer_config.json (cls_token, sep_token, mask_token, pad_token, unk_token)"
        )
    added = [{**token, "special": True} if token["content"] in special.all() else token for token in added] + [
        added_token(token, vocab[token], special=True) for token in special.all() if token not in known
    ]
    ids = vocab | {token["content"]: token["id"] for token in added}
    return {
        **spec,
        # A length limit stored by whoever saved the file last must not cut anybody's text in silence.
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: int(token["id"])),
        "post_processor": bert_frame(special, ids),
        "model": {"type": "WordPiece", **STANDARD_MODEL, **model, "vocab": vocab, "unk_token": special.unk},
    }


def check_shape(spec: Spec, source: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The model part and the added tokens of a dictionary that may come from any tool."""
    model, added = spec.get("model"), spec.get("added_tokens") or []
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(model, dict) or model.get("type", "WordPiece") != "WordPiece" or not isinstance(vocab, dict):
        kind = model.get("type") if isinstance(model, dict) else None
        raise BertkitError(
            f"{source} holds a tokenizer of type {kind}, but BERT needs WordPiece; take a BERT checkpoint"
        )
    if not vocab:
        raise BertkitError(f"{source} has an empty vocabulary; take it again from where it came")
    for token in added:
        if (
            not isinstance(token, dict)
            or not isinstance(token.get("content"), str)
            or not isinstance(token.get("id"), int)
        ):
            raise BertkitError(f"{source} has a broken list of added tokens; take the file again from where it came")
    return model, added


def fill_holes(vocab: dict[str, Any], added: list[dict[str, Any]], source: str) -> dict[str, int]:
    """The vocabulary in the order of its ids, with a name that no text can match for every id left out."""
    taken: dict[int, str] = {}
    for token, index in vocab.items():
        if not isinstance(index, int) or index < 0:
            raise BertkitError(f"{source} gives {token!r} the id {index!r}; ids are whole numbers from 0")
        if index in taken:
            raise BertkitError(f"{source} gives the id {index} to both {taken[index]!r} and {token!r}; remove one")
        taken[index] = token
    beyond = {token["id"]: token["content"] for token in added if token["content"] not in vocab}
    size = max(taken) + 1
    # Some files list special tokens as added ones only, with ids in the middle of the vocabulary.
    taken |= {index: content for index, content in beyond.items() if index < size and index not in taken}
    size = max(size, min((index for index in beyond if index >= size), default=size))
    if size > 2 * len(taken) + 1000:
        raise BertkitError(
            f"{source} has {len(taken)} tokens but ids up to {size - 1}; take it again from where it came"
        )
    return {taken.get(index, blank_name(index)): index for index in range(size)}


def blank_name(index: int) -> str:
    """A stand-in for a vocabulary row without a token; the pre-tokenizer splits brackets, so no text gives it."""
    return f"[blank{index}]"


def added_token(content: str, index: int, *, special: bool) -> dict[str, Any]:
    """An entry of `added_tokens`, with the flags that BERT's own special tokens have."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": not special}
    return {"id": index, "content": content, **flags, "special": special}


def bert_frame(special: SpecialTokens, ids: dict[str, int]) -> dict[str, Any]:
    """[CLS] A [SEP] and [CLS] A [SEP] B [SEP], for other programs; bertkit builds them itself."""

    def piece(token: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [piece(special.cls, 0), text("A", 0), piece(special.sep, 0)]
    named = {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in (special.cls, special.sep)}
    pair = [*single, text("B", 1), piece(special.sep, 1)]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": named}


def build_backend(spec: Spec, source: str) -> tk.Tokenizer:
    """The `tokenizers` object that runs a completed dictionary."""
    try:
        backend = tk.Tokenizer.from_str(json.dumps(spec))
    except Exception as error:  # the Rust side raises plain Exception
        raise BertkitError(
            f"{source} is no tokenizer that can be read ({error}); take it again from where it came"
        ) from None
    for token in spec["added_tokens"]:
        if (given := backend.token_to_id(token["content"])) != token["id"]:
            raise BertkitError(
                f"{source} wants the added token {token['content']!r} at id {token['id']}, but the vocabulary puts it at "
                f"{given}; give the added tokens the ids after the last of the vocabulary"
            )
    return backend


def bert_normalizer(spec: Spec) -> dict[str, Any] | None:
    """BERT's own normalizer inside a pipeline, to read or to change; None where the pipeline uses others."""
    for part in flat_normalizers(spec):
        if part.get("type") == "BertNormalizer":
            return part
    return None


def flat_normalizers(spec: Spec) -> list[dict[str, Any]]:
    """All normalizers of a pipeline in the order in which they run."""
    top = spec.get("normalizer")
    if not isinstance(top, dict):
        return []
    parts = top.get("normalizers") or [] if top.get("type") == "Sequence" else [top]
    return [part for part in parts if isinstance(part, dict)]


def lowercases(spec: Spec) -> bool:
    """Whether the pipeline turns capitals into small letters."""
    return any(part.get("type") == "Lowercase" or part.get("lowercase") is True for part in flat_normalizers(spec))


def token_list(spec: Spec) -> list[str]:
    """All tokens of a completed dictionary in the order of their ids."""
    ids = spec["model"]["vocab"] | {token["content"]: token["id"] for token in spec["added_tokens"]}
    return sorted(ids, key=ids.__getitem__)


def is_standard(spec: Spec) -> bool:
    """Whether this is BERT's own pipeline, which others rebuild from the vocabulary and three settings."""
    normalizer, model = spec.get("normalizer") or {}, spec["model"]
    return (
        normalizer.get("type") == "BertNormalizer"
        and normalizer.get("clean_text", True) is True
        and (spec.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
        and all(model[key] == value for key, value in STANDARD_MODEL.items())
    )


def fingerprint(spec: Spec) -> str:
    """A hash of everything in a completed dictionary that changes ids; the same for the same ids in every version."""
    normalizer: Any = spec.get("normalizer")
    if is_standard(spec):
        strip = normalizer.get("strip_accents")
        lower = normalizer["lowercase"]
        normalizer = [lower, lower if strip is None else strip, normalizer.get("handle_chinese_chars", True)]
    model = {key: spec["model"][key] for key in (*STANDARD_MODEL, "unk_token")}
    flags = added_token("", 0, special=True)
    added = [[token.get(key, default) for key, default in flags.items()] for token in spec["added_tokens"]]
    frame = spec["post_processor"]["single"]
    parts = [token_list(spec), model, normalizer, spec.get("pre_tokenizer"), added, frame]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
