"""Cleaning paragraphs, and the keys by which equal ones are found.

What enters: a paragraph as somebody's file holds it. What leaves: the same text without what no reader sees, and a
hash that two paragraphs share when nothing but that differs. Conservative: no word, number or mark is changed.
"""

import hashlib
import re
import unicodedata

# Removed, because they are no text, or change only how text is laid out, yet would make equal words look different:
INVISIBLE = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"  # control characters that are no white space: terminals, damaged files
    "\xad"  # soft hyphen: where a line may break inside a word
    "\u200b\u2060\ufeff"  # zero-width space, word joiner, byte order mark: the same, from web pages and editors
    "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction marks: layout, and a way to hide text
    "\ufffd\ufffe\uffff\ufdd0-\ufdef"  # stands where a character was lost; and code points that are no characters
    "\ud800-\udfff"  # half a surrogate pair is no Unicode, and the tokenizer refuses it
)
# The zero-width joiners U+200C and U+200D stay: Persian and Indic spelling and emoji depend on them.
# The rest of white space (tabs, no-break and wide spaces, line and page ends) becomes one space: BERT sees them alike.
REMOVED = re.compile(f"[{INVISIBLE}]+")


def clean_paragraph(text: str) -> str:
    """The paragraph on one line, composed (NFC), without invisible characters, with single spaces; "" if none is left."""
    # Most paragraphs are clean already, and looking is much cheaper than making a new string.
    if not (text.isprintable() and "  " not in text and "\ufffd" not in text and text == text.strip(" ")):
        text = " ".join(REMOVED.sub("", text).split())
    # NFC joins a letter and its accent, so that both spellings of "é" are one. Not NFKC, which turns x² into x2.
    if not text.isascii() and not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    return text


def paragraph_key(cleaned: str, num_bytes: int = 8) -> bytes:
    """A hash of a cleaned paragraph, the same on every machine; equal paragraphs have equal keys.

    With 8 bytes, a billion different paragraphs have one chance in 37 that any two share a key; 16 bytes exclude it.
    Many keys are numbers at once by numpy.frombuffer(b"".join(keys), "<u8").
    """
    return hashlib.blake2b(cleaned.encode("utf-8", "surrogatepass"), digest_size=num_bytes).digest()
