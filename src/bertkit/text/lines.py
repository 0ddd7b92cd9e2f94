"""Texts from a file or from standard input, one at a time: .txt by lines, .jsonl by a field; plain or packed.

Nothing is skipped in silence: a broken line stops with its number.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bertkit.errors import BertkitError
from bertkit.text.files import inner_suffix, open_bytes, unpacking_errors


def read_texts(source: str, field: str = "text") -> Iterator[str]:
    """Every line's text ("-" is standard input); an empty line is an empty text, so that lines and results match."""
    as_json = inner_suffix(Path(source)) in (".jsonl", ".ndjson")
    for number, line in enumerate(_lines(source), start=1):
        yield _json_text(line, field, source, number) if as_json else line


def _lines(source: str) -> Iterator[str]:
    number = 1
    with _open(source) as stream:
        try:
            for raw in stream:
                # utf-8-sig drops the byte order mark that some editors put before the first line
                yield raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                number += 1
        except UnicodeDecodeError as error:
            raise BertkitError(f"{source}, line {number}: not UTF-8 ({error.reason}); convert it first") from None
        except unpacking_errors(Path(source)) as error:
            raise BertkitError(f"{source}: cannot be read to its end ({error}); is it complete?") from None


def _open(source: str) -> IO[bytes]:
    if source == "-":
        return sys.stdin.buffer
    path = Path(source)
    if not path.exists() or path.is_dir():
        raise BertkitError(
            f"no file {source}; name one with a text a line, or a .jsonl file (also .gz, .xz, .zst), or - for standard input"
        )
    return open_bytes(path)


def _json_text(line: str, field: str, source: str, number: int) -> str:
    try:
        text = json.loads(line)[field]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BertkitError(f'{source}, line {number}: not a JSON object with the field "{field}"') from None
    if not isinstance(text, str):
        raise BertkitError(f'{source}, line {number}: the field "{field}" is not text')
    return text
