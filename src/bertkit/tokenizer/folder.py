"""A checkpoint folder's tokenizer files: vocab.txt, tokenizer.json, tokenizer_config.json, and the older ones beside them.

What enters: a folder, or one vocab.txt or tokenizer.json. What leaves: a completed pipeline dictionary with its
settings; and the other way round, the three files that `transformers` and `sentence-transformers` read.
Foreign names (`do_lower_case`, `tokenize_chinese_chars`) stay in this file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertkit.bundled import folder_of, is_here
from bertkit.errors import BertkitError
from bertkit.tokenizer import pipeline
from bertkit.tokenizer.casing import settle_casing
from bertkit.tokenizer.encoding import SpecialTokens
from bertkit.tokenizer.pipeline import Spec

ROLES = ("pad", "unk", "cls", "sep", "mask")
DEFAULT_MAX_LENGTH = 512


@dataclass(frozen=True)
class Stored:
    """What a folder says about its tokenizer."""

    spec: Spec
    special: SpecialTokens
    max_length: int | None
    casing_source: str
    doubts: list[str] = field(default_factory=list)


def read_folder(path: Path, lowercase: bool | None) -> Stored:
    """Read a folder's tokenizer, or a single vocab.txt or tokenizer.json; `lowercase` overrides what is stored."""
    folder, vocab_file, json_file = locate(path)
    config = read_json(folder / "tokenizer_config.json") if path.is_dir() else {}
    names = read_json(folder / "special_tokens_map.json") if path.is_dir() else {}
    special = special_tokens(config, names)
    if json_file is None:
        assert vocab_file is not None
        source = str(vocab_file)
        spec = pipeline.new_spec(read_vocab(vocab_file), source)
        spec["added_tokens"] = old_added_tokens(folder, config, names, spec) if path.is_dir() else []
    else:
        source = str(json_file)
        spec = read_json(json_file)
    in_json = None if json_file is None else pipeline.lowercases(spec)
    spec = pipeline.complete_spec(spec, special, source)
    if json_file is not None and vocab_file is not None:
        compare_files(read_vocab(vocab_file), spec, folder)
    if (own := pipeline.bert_normalizer(spec)) is not None:
        own["strip_accents"] = config.get("strip_accents", own.get("strip_accents"))
        own["handle_chinese_chars"] = config.get("tokenize_chinese_chars", own.get("handle_chinese_chars", True))
    in_config = config.get("do_lower_case")
    in_config = in_config if isinstance(in_config, bool) else None
    casing_source, doubts = settle_casing(spec, wanted=lowercase, in_config=in_config, in_json=in_json, source=source)
    limit = config.get("model_max_length")
    # transformers writes 1e30 where it knows no limit
    max_length = int(limit) if isinstance(limit, int | float) and 0 < limit < 10**9 else None
    return Stored(spec, special, max_length, casing_source, doubts)


def locate(path: Path) -> tuple[Path, Path | None, Path | None]:
    """The folder (or that of a bundled model, by its name), and the vocab.txt and tokenizer.json that it holds."""
    if path.is_file():
        return (path.parent, None, path) if path.suffix == ".json" else (path.parent, path, None)
    if not path.exists() and is_here(str(path)):
        path = folder_of(str(path))
    if not path.is_dir():
        raise BertkitError(f"{path} does not exist; give a checkpoint folder, a vocab.txt or a tokenizer.json")
    vocab_file, json_file = path / "vocab.txt", path / "tokenizer.json"
    if not vocab_file.is_file() and not json_file.is_file():
        raise BertkitError(f"{path} has neither vocab.txt nor tokenizer.json; copy one there from the same checkpoint")
    return path, vocab_file if vocab_file.is_file() else None, json_file if json_file.is_file() else None


def read_text(path: Path) -> str:
    """A UTF-8 file's text, with line ends as they are."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BertkitError(f"{path} is not UTF-8 text (byte {error.start}); take it again from where it came") from None
    except OSError as error:
        raise BertkitError(f"{path} cannot be read: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; empty when the file is not there."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise BertkitError(f"{path} is not valid JSON ({error}); take it again from where it came") from None
    if not isinstance(value, dict):
        raise BertkitError(f"{path} is not a JSON object; take it again from where it came")
    return value


def read_vocab(path: Path) -> list[str]:
    """One token a line, line number = id; a blank line keeps its id under a name that no text can match."""
    # Not splitlines(): Chinese vocabularies hold the line separator U+2028 as a token.
    lines = [line.rstrip(" \t\r") for line in read_text(path).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise BertkitError(f"{path} is empty; take it again from where it came")
    return [line or pipeline.blank_name(index) for index, line in enumerate(lines)]


def special_tokens(*files: dict[str, Any]) -> SpecialTokens:
    """The special tokens' names; a file gives them as strings or as objects with `content`."""
    names: dict[str, str] = {}
    for role in ROLES:
        for content in files:
            value = content.get(f"{role}_token")
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                names.setdefault(role, value)
    return SpecialTokens(**names)


def old_added_tokens(folder: Path, config: dict[str, Any], names: dict[str, Any], spec: Spec) -> list[dict[str, Any]]:
    """Added tokens of a folder without tokenizer.json: `added_tokens_decoder`, or added_tokens.json before it."""
    decoder = config.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        try:
            return [
                {**pipeline.added_token("", 0, special=False), **token, "id": int(i)} for i, token in decoder.items()
            ]
        except (TypeError, ValueError):
            raise BertkitError(
                f"{folder / 'tokenizer_config.json'} has a broken added_tokens_decoder; remove it"
            ) from None
    more = [*(config.get("additional_special_tokens") or []), *(names.get("additional_special_tokens") or [])]
    extra = dict.fromkeys(str(token.get("content")) if isinstance(token, dict) else str(token) for token in more)
    vocab = spec["model"]["vocab"]
    added = {token: vocab[token] for token in extra if token in vocab} | read_json(folder / "added_tokens.json")
    return [pipeline.added_token(token, index, special=token in extra) for token, index in added.items()]


def compare_files(lines: list[str], spec: Spec, folder: Path) -> None:
    """Refuse a folder whose vocab.txt and tokenizer.json give different ids."""
    tokens = pipeline.token_list(spec)
    for index, (line, token) in enumerate(zip(lines, tokens, strict=False)):
        # Some tools strip Unicode spaces from the lines; such tokens match no text, so that changes nothing.
        if line != token and (line.rstrip() or pipeline.blank_name(index)) != vocab_line(token.rstrip(), index):
            raise BertkitError(
                f"{folder}: vocab.txt and tokenizer.json disagree, id {index} is {line!r} in one and {token!r} in the other; "
                "remove the file that does not belong to this checkpoint"
            )
    if not len(spec["model"]["vocab"]) <= len(lines) <= len(tokens):
        raise BertkitError(
            f"{folder}: vocab.txt has {len(lines)} tokens and tokenizer.json {len(tokens)}; "
            "remove the file that does not belong to this checkpoint"
        )


def vocab_line(token: str, index: int) -> str:
    """A token as vocab.txt can hold it: what does not survive reading becomes a blank row's name."""
    return token if token == token.rstrip(" \t\r") != "" and "\n" not in token else pipeline.blank_name(index)


def write_folder(folder: Path, stored: Stored, tokenizer_json: str) -> None:
    """Write vocab.txt, tokenizer.json and tokenizer_config.json."""
    spec = stored.spec
    lines = [vocab_line(token, index) + "\n" for index, token in enumerate(pipeline.token_list(spec))]
    own = pipeline.bert_normalizer(spec) or {}
    more = [t["content"] for t in spec["added_tokens"] if t["special"] and t["content"] not in stored.special.all()]
    config: dict[str, Any] = {
        # Programs rebuild BERT's own pipeline from these settings; any other has to be taken from tokenizer.json.
        "tokenizer_class": "BertTokenizer" if pipeline.is_standard(spec) else "PreTrainedTokenizerFast",
        "do_lower_case": pipeline.lowercases(spec),
        "strip_accents": own.get("strip_accents"),
        "tokenize_chinese_chars": own.get("handle_chinese_chars", False),
        "model_max_length": stored.max_length or DEFAULT_MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
        **{f"{role}_token": getattr(stored.special, role) for role in ROLES},
    }
    if more:
        config["additional_special_tokens"] = more
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vocab.txt").write_bytes("".join(lines).encode())
        (folder / "tokenizer.json").write_bytes(tokenizer_json.encode() + b"\n")
        (folder / "tokenizer_config.json").write_bytes(json.dumps(config, indent=2).encode() + b"\n")
    except OSError as error:
        raise BertkitError(f"the tokenizer cannot be written to {folder}: {error.strerror}") from None
