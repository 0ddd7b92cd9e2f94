"""Files -> lines with their ends, unpacked and decoded on the way, one at a time.

Bytes that are no UTF-8 become lone surrogates here, so that the row that holds them can be named by `check_unicode`.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from bertkit.errors import BertkitError
from bertkit.tasks.reading.problems import BadRowError, whole_file
from bertkit.text.documents import UTF16_MARKS
from bertkit.text.files import open_bytes
from bertkit.text.rows import MAX_ROW_BYTES

SAMPLE_CHARACTERS = 2**20  # how much of a file is looked at before it is read
SURROGATE = re.compile("[\ud800-\udfff]")
ESCAPED_BYTE = re.compile("[\udc80-\udcff]")


def raw_lines(path: Path) -> Iterator[str]:
    """Every line as it stands, its end included; a byte order mark is dropped."""
    number = 0
    with whole_file(path), open_bytes(path) as stream:
        while raw := stream.readline(MAX_ROW_BYTES):
            number += 1
            if len(raw) == MAX_ROW_BYTES and not raw.endswith(b"\n"):
                raise BertkitError(f"{path}, line {number}: over {MAX_ROW_BYTES >> 20} MiB; is this a file of rows?")
            if number == 1 and raw.startswith(UTF16_MARKS):
                raise BertkitError(f"{path} is UTF-16; save it as UTF-8 (`iconv -f utf-16 -t utf-8`)")
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8", errors="surrogateescape")


def sample_lines(path: Path) -> list[str]:
    """The first lines of a file, about a MiB of them."""
    total = 0

    def fits(line: str) -> bool:
        nonlocal total
        fits = total < SAMPLE_CHARACTERS
        total += len(line)
        return fits

    return list(takewhile(fits, raw_lines(path)))


def check_unicode(text: str) -> str:
    """The same text, if all of it is Unicode."""
    if text.isascii() or not SURROGATE.search(text):
        return text
    if ESCAPED_BYTE.search(text):
        raise BadRowError("not UTF-8; convert the file, as `iconv -f latin1 -t utf-8` does from Latin-1")
    raise BadRowError("half a surrogate pair, which is no valid Unicode; correct the text")
