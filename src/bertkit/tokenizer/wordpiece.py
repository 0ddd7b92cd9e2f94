"""The tokenizer: strings to the inputs of a BERT model, and token ids back to strings.

What enters: texts or pairs of texts, and a limit on their length. What leaves: Encodings.
A text over the limit is an error, is cut, or is split into windows, as the caller chose, and is always reported.
Nothing here changes after construction, so one Tokenizer serves many threads.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import tokenizers as tk

from bertkit.errors import BertkitError, LongTextWarning
from bertkit.tokenizer import pipeline
from bertkit.tokenizer.casing import CasingWarning, casing_conflict
from bertkit.tokenizer.encoding import WHOLE, Encoding, SpecialTokens
from bertkit.tokenizer.fitting import Frame, Limit, LongPolicy, fit_long, summarise
from bertkit.tokenizer.folder import Stored, read_folder, write_folder
from bertkit.tokenizer.inputs import Text, explain_refusal, flatten, name_text

# A lone text of so many is read in this thread: handing it to the library's pool takes longer than reading it. A longer
# one is handed over, since `encode` holds Python's lock, so that other threads (a server's) would stand still.
LONE_CHARACTERS = 4000


class Tokenizer:
    """WordPiece with BERT's special tokens; made by `from_vocab` or `load`."""

    def __init__(self, stored: Stored, source: str) -> None:
        self._stored = stored
        self._backend = pipeline.build_backend(stored.spec, source)
        ids = [self._ids[token] for token in stored.special.all()]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = ids
        self._frame = Frame(stored.special, self.cls_id, self.sep_id)

    @classmethod
    def from_vocab(
        cls, tokens: Sequence[str], *, lowercase: bool, strip_accents: bool | None = None, handle_chinese: bool = True
    ) -> Tokenizer:
        """BERT's tokenizer over these tokens, each with its place in the list as its id."""
        source = "the vocabulary"
        spec = pipeline.new_spec(tokens, source)
        spec["normalizer"].update(lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=handle_chinese)
        if conflict := casing_conflict(tokens, lowercase=lowercase, source=source):
            warnings.warn(conflict, CasingWarning, stacklevel=2)
        special = SpecialTokens()
        return cls(Stored(pipeline.complete_spec(spec, special, source), special, None, "given by the caller"), source)

    @classmethod
    def load(cls, folder: str | Path, *, lowercase: bool | None = None) -> Tokenizer:
        """Read a checkpoint folder's tokenizer (or one vocab.txt or tokenizer.json); `lowercase` overrides its casing."""
        stored = read_folder(Path(folder), lowercase)
        for doubt in stored.doubts:
            warnings.warn(doubt, CasingWarning, stacklevel=2)
        return cls(stored, str(folder))

    def save(self, folder: str | Path, *, max_length: int | None = None) -> None:
        """Write vocab.txt, tokenizer.json and tokenizer_config.json; `max_length` is the model's number of positions."""
        stored = self._stored if max_length is None else replace(self._stored, max_length=max_length)
        write_folder(Path(folder), stored, self._backend.to_str(pretty=True))

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included; every id is below it."""
        return len(self.tokens)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """All tokens in the order of their ids."""
        return tuple(pipeline.token_list(self._stored.spec))

    @property
    def spec(self) -> dict[str, Any]:
        """The pipeline as tokenizer.json describes it; to be read, not changed."""
        return self._stored.spec

    @property
    def lowercase(self) -> bool:
        """Whether text is lower-cased, that is, whether the model is uncased."""
        return pipeline.lowercases(self._stored.spec)

    @property
    def casing_source(self) -> str:
        """Where the casing came from: a file's name, "given by the caller" or "inferred from the vocabulary"."""
        return self._stored.casing_source

    @property
    def max_length(self) -> int | None:
        """The limit on tokens that the folder states; only a note, `encode` obeys the limit that it is given."""
        return self._stored.max_length

    @property
    def special(self) -> SpecialTokens:
        """The strings of the five special tokens."""
        return self._stored.special

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of all special tokens: the five of BERT and those that somebody added as special."""
        return frozenset(token["id"] for token in self._stored.spec["added_tokens"] if token["special"])

    @cached_property
    def fingerprint(self) -> str:
        """A hash that is equal for two tokenizers only if they give the same ids for every text."""
        return pipeline.fingerprint(self._stored.spec)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    def __contains__(self, token: str) -> bool:
        return token in self._ids

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} tokens, {'uncased' if self.lowercase else 'cased'})"

    def token(self, token_id: int) -> str:
        """The token with this id."""
        if not 0 <= token_id < self.vocab_size:
            raise BertkitError(f"{token_id} is no token id; the vocabulary has ids 0 to {self.vocab_size - 1}")
        return self.tokens[token_id]

    def id(self, token: str) -> int:
        """The id of a token that is in the vocabulary; ask `token in tokenizer` first where it may not be."""
        if token not in self._ids:
            raise BertkitError(f"{token!r} is not in the vocabulary of {self.vocab_size} tokens; encode it instead")
        return self._ids[token]

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text from token ids: pieces joined, spaces between words; casing and spacing lost in encoding stay lost."""
        ids = list(ids)
        for token_id in ids:
            self.token(token_id)
        return self._backend.decode(ids, skip_special_tokens=skip_special)

    def encode(
        self,
        a: str,
        b: str | None = None,
        *,
        max_length: int | None = None,
        long: Literal["error", "truncate"] = "error",
    ) -> Encoding:
        """One text or one pair as one model input; over `max_length` tokens it is an error or is cut."""
        if long not in ("error", "truncate"):
            raise BertkitError(f"encode gives one Encoding, so long={long!r} cannot be; call encode_windows")
        return self._encode([(a, b)], Limit(max_length, long))[0][0]

    def encode_windows(
        self, a: str, b: str | None = None, *, max_length: int, stride: int | None = None
    ) -> list[Encoding]:
        """One text or pair as windows of at most `max_length` tokens; neighbours share `stride` tokens of text."""
        return self._encode([(a, b)], Limit(max_length, "window", stride))[0]

    def encode_batch(
        self,
        texts: Sequence[Text],
        *,
        max_length: int | None = None,
        long: LongPolicy = "error",
        stride: int | None = None,
        offsets: bool = True,
    ) -> list[list[Encoding]]:
        """Many texts or pairs; each gives a list of one Encoding, or of several windows with long="window".

        With offsets=False it is faster, and the Encodings know ids alone: not their spelling, nor where they stand.
        """
        return self._encode(texts, Limit(max_length, long, stride), offsets=offsets)

    def encode_ids(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """Token ids alone, without [CLS] and [SEP] around them and without any limit: the fastest way.

        A [MASK] or [SEP] that stands in a text is that token, as everywhere; with special=False it is the characters.
        """
        return [raw.ids for raw in self._run(texts, offsets=False, special=special)]

    def split_words(self, text: str) -> list[str]:
        """The words of a text as the vocabulary would spell them: normalized, cut at spaces and marks, not in pieces."""
        try:
            normal = self._backend.normalizer.normalize_str(text) if self._backend.normalizer else text
            cutter = self._backend.pre_tokenizer
            return [word for word, _ in cutter.pre_tokenize_str(normal)] if cutter else [normal]
        except (TypeError, UnicodeEncodeError):
            if refusal := explain_refusal([text]):
                raise refusal from None
            raise

    def with_words(self, rows: Mapping[int, str]) -> Tokenizer:
        """The same tokenizer with these words at these ids, in place of [unused] rows or after the last token."""
        vocab = {token: index for token, index in self._stored.spec["model"]["vocab"].items() if index not in rows}
        model = {**self._stored.spec["model"], "vocab": vocab | {word: index for index, word in rows.items()}}
        source = "the extended vocabulary"
        spec = pipeline.complete_spec({**self._stored.spec, "model": model}, self.special, source)
        return Tokenizer(replace(self._stored, spec=spec), source)

    def _encode(self, texts: Sequence[Text], limit: Limit, *, offsets: bool = True) -> list[list[Encoding]]:
        flat, paired = flatten(texts)
        raws = iter(self._run(flat, offsets=offsets))
        special, cls_id, sep_id = self.special, self.cls_id, self.sep_id
        most = float("inf") if limit.max_length is None else limit.max_length
        encodings: list[list[Encoding]] = []
        long_texts: list[list[Encoding]] = []
        for index, is_pair in enumerate(paired):
            raw_a, raw_b = next(raws), next(raws) if is_pair else None
            ids = [cls_id, *raw_a.ids, sep_id]
            num_a, num_b = len(ids) - 2, None
            if raw_b is not None:
                ids += raw_b.ids
                num_b = len(ids) - num_a - 2
                ids.append(sep_id)
            if len(ids) <= most:
                encodings.append([Encoding(ids, num_a, num_b, 0, WHOLE, raw_a, raw_b, special)])
            else:
                name = name_text(texts[index], index, len(texts))
                long_texts.append(fit_long(self._frame, raw_a, raw_b, limit, name))
                encodings.append(long_texts[-1])
        if long_texts:
            warnings.warn(summarise(long_texts, len(texts), limit), LongTextWarning, stacklevel=3)
        return encodings

    @cached_property
    def _blind_backend(self) -> tk.Tokenizer:
        """One that sees no special tokens in texts."""
        backend = pipeline.build_backend(self._stored.spec, "the tokenizer")
        backend.encode_special_tokens = True
        return backend

    def _run(self, strings: Sequence[str], *, offsets: bool = True, special: bool = True) -> list[tk.Encoding]:
        backend = self._backend if special else self._blind_backend
        run = backend.encode_batch if offsets else backend.encode_batch_fast
        try:
            if len(strings) == 1 and len(strings[0]) <= LONE_CHARACTERS:
                return [backend.encode(strings[0], add_special_tokens=False)]
            return run(strings, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            if refusal := explain_refusal(strings):
                raise refusal from None
            raise
