"""Which scripts and languages a text is in: a light measure, good enough to see that a corpus is mixed.

What enters: passages. What leaves: how many letters are of which script, and how many characters are in passages of
which language. Scripts come from the names of Unicode; languages from small words, which any running text is full of.
It cannot see languages it has no words of, lists and names, or a foreign word inside a sentence.
"""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

from bertkit.text.function_words import FUNCTION_WORDS

UNCLEAR = "unclear"
WORD = re.compile(r"[^\W\d_]+")
LEAST_WORDS = 12  # of a passage that is judged by its small words
LEAST_SHARE = 0.15  # of its words that must be small words of the language
LEAST_LEAD = 1.25  # times the hits of the second
MOST_CHARACTERS = 2000  # of a passage that are looked at
BY_WORDS = ("Latin", "Cyrillic")
BY_SCRIPT = {"Cjk": "Chinese", "Hiragana": "Japanese", "Katakana": "Japanese", "Hangul": "Korean", "Thai": "Thai"}
KANA = ("Hiragana", "Katakana")


@cache
def script_of(letter: str) -> str:
    """Latin, Cyrillic, Greek, Cjk, ...: the first word of the letter's name; "" for what is no letter."""
    name = unicodedata.name(letter, "") if letter.isalpha() else ""
    return name.partition(" ")[0].partition("-")[0].capitalize()


def fold(text: str) -> str:
    """Small letters without accents, as an uncased vocabulary spells them."""
    decomposed = unicodedata.normalize("NFD", text.casefold())
    return decomposed if decomposed.isascii() else "".join(c for c in decomposed if not unicodedata.combining(c))


@cache
def _languages_of_words() -> dict[str, tuple[str, ...]]:
    """Each folded small word, and the languages that have it."""
    found: dict[str, tuple[str, ...]] = {}
    for language, words in FUNCTION_WORDS.items():
        for word in dict.fromkeys(fold(words).split()):
            found[word] = (*found.get(word, ()), language)
    return found


def count_scripts(text: str) -> Counter[str]:
    """How many letters of each script."""
    scripts: Counter[str] = Counter()
    for letter, count in Counter(text).items():
        if script := script_of(letter):
            scripts[script] += count
    return scripts


def _guess(text: str, scripts: Counter[str]) -> str:
    if not scripts:
        return UNCLEAR
    main, _ = scripts.most_common(1)[0]
    if main in BY_WORDS:
        return _guess_by_words(text)
    if main == "Cjk" and sum(scripts[kana] for kana in KANA) * 10 > scripts.total():
        return "Japanese"
    return BY_SCRIPT.get(main, f"{main} script")


def _guess_by_words(text: str) -> str:
    words = WORD.findall(fold(text))
    known = _languages_of_words()
    hits: Counter[str] = Counter(language for word in words for language in known.get(word, ()))
    if len(words) < LEAST_WORDS or not hits:
        return UNCLEAR
    (best, count), (_, second) = (*hits.most_common(2), ("", 0))[:2]
    return best if count >= LEAST_SHARE * len(words) and count >= LEAST_LEAD * second else UNCLEAR


@dataclass
class LanguageCounts:
    """Letters by script, characters by language, capitals; added up passage by passage."""

    scripts: Counter[str] = field(default_factory=Counter)  # letters
    languages: Counter[str] = field(default_factory=Counter)  # characters of passages
    num_capitals: int = 0
    num_small: int = 0

    def add(self, passage: str) -> None:
        """One more paragraph or run of sentences."""
        text = passage[:MOST_CHARACTERS]
        scripts = count_scripts(text)
        self.scripts.update(scripts)
        self.languages[_guess(text, scripts)] += len(passage)
        for letter, count in Counter(text).items():
            self.num_capitals += count * letter.isupper()
            self.num_small += count * letter.islower()

    @property
    def capital_share(self) -> float:
        """Of letters that could be either."""
        return self.num_capitals / max(1, self.num_capitals + self.num_small)

    @property
    def main_script_share(self) -> float:
        """Of letters; kana and Chinese characters count as one script, for Japanese is written in both. 1 without any."""
        mixed = sum(self.scripts[script] for script in ("Cjk", *KANA))
        return max(mixed, *self.scripts.values()) / self.scripts.total() if self.scripts.total() else 1.0

    def shares(self, counts: Counter[str]) -> dict[str, float]:
        """Shares of the whole, the largest first."""
        return {name: count / max(1, counts.total()) for name, count in counts.most_common()}
