"""Does a vocabulary expect capitals? Guessing it, and noticing when the stored setting says otherwise.

What enters: the tokens of a vocabulary and, where a file states it, the stored casing.
What leaves: the casing to use, and the text of a CasingWarning when the two do not belong together.
An uncased model never saw a capital, so its vocabulary holds none; a cased one holds thousands of capitalised words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bertkit.errors import BertkitError
from bertkit.tokenizer.pipeline import Spec, bert_normalizer, flat_normalizers, lowercases


class CasingWarning(UserWarning):
    """The stored casing and the vocabulary do not belong together, or the casing had to be guessed."""


@dataclass(frozen=True, slots=True)
class CasingEvidence:
    """What a vocabulary shows: pieces with capitals, pieces with small letters only, all pieces."""

    num_capital: int
    num_small: int
    num_pieces: int

    @property
    def looks_cased(self) -> bool:
        """Enough capitals that lower-casing would lose them: 1 % of all pieces with letters, at least five."""
        return self.num_capital >= max(5, (self.num_capital + self.num_small) // 100)

    @property
    def looks_lowercase(self) -> bool:
        """Mostly words in small letters and not one capital."""
        # A Chinese vocabulary has a few lower-case words among thousands of characters: that settles nothing.
        return self.num_capital == 0 and self.num_small >= 20 and self.num_small * 2 > self.num_pieces


def weigh_casing(tokens: Iterable[str]) -> CasingEvidence:
    """Count capitals and small letters in a vocabulary, leaving out names in brackets such as [CLS] and <S>."""
    num_capital = num_small = num_pieces = 0
    for token in tokens:
        if len(token) > 1 and (token[0], token[-1]) in {("[", "]"), ("<", ">")}:
            continue
        num_pieces += 1
        # Single letters count: a protein vocabulary is nothing but capitals, and it is a cased one.
        if token != token.lower():
            num_capital += 1
        elif token != token.upper():
            num_small += 1
    return CasingEvidence(num_capital, num_small, num_pieces)


def infer_lowercase(tokens: Iterable[str], source: str) -> tuple[bool, str | None]:
    """The casing that the vocabulary shows, for files that do not state it, and a doubt where it shows too little."""
    evidence = weigh_casing(tokens)
    if evidence.looks_cased or not evidence.num_capital:
        return not evidence.looks_cased, None
    return True, (
        f"{source} does not say whether the model is cased and its vocabulary is unclear ({evidence.num_capital} "
        f"pieces with capitals, {evidence.num_small} without); taken as uncased, pass lowercase=False (or convert --cased) if it is cased"
    )


def casing_conflict(tokens: Iterable[str], *, lowercase: bool, source: str) -> str | None:
    """What to warn of when this casing would make a good part of the vocabulary unreachable; None when all is well."""
    evidence = weigh_casing(tokens)
    if lowercase and evidence.looks_cased:
        return (
            f"{source} is read as uncased, but it has {evidence.num_capital:,} pieces with capitals that lower-cased "
            "text can never give; if the model is cased, pass lowercase=False (or convert --cased)"
        )
    if not lowercase and evidence.looks_lowercase:
        return (
            f"{source} is read as cased, but it has no piece with a capital, so capitalised words become [UNK]; "
            "if the model is uncased, pass lowercase=True (or convert --uncased)"
        )
    return None


def settle_casing(
    spec: Spec, *, wanted: bool | None, in_config: bool | None, in_json: bool | None, source: str
) -> tuple[str, list[str]]:
    """Set the casing in `spec`; returns where it came from (caller, config, tokenizer.json, vocabulary) and doubts."""
    own, doubt = bert_normalizer(spec), None
    if any(part.get("type") == "Lowercase" for part in flat_normalizers(spec)):
        own = None  # which would only add what else it does to uncased text: strip accents
    if wanted is not None:
        lowercase, origin = wanted, "given by the caller"
    elif in_config is not None and own is not None:
        lowercase, origin = in_config, "tokenizer_config.json"
    elif in_json is not None:
        lowercase, origin = in_json, "tokenizer.json"
    else:
        lowercase, doubt = infer_lowercase(spec["model"]["vocab"], source)
        origin = "inferred from the vocabulary"
    if own is not None:
        own["lowercase"] = lowercase
    elif lowercase != lowercases(spec):
        raise BertkitError(f"{source} has a normalizer of its own, whose casing cannot be changed; leave lowercase out")
    clash = None
    if wanted is None and None not in (in_config, in_json) and in_config != in_json:
        clash = (
            f"{source} and the tokenizer_config.json beside it disagree on casing (do_lower_case is {in_config}); "
            f"{origin} is followed, pass lowercase={in_config} or lowercase={in_json} to decide"
        )
    conflict = casing_conflict(spec["model"]["vocab"], lowercase=lowercase, source=source)
    return origin, [text for text in (doubt, clash, conflict) if text]
