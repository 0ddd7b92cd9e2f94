"""Texts from a file or from standard input, one at a time: .txt by lines, .jsonl by a field; plain or .gz or .xz.

Nothing is skipped in silence: a broken line stops with its number.
"""

import gzip
import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bertkit.errors import BertkitError

OPENERS = {".gz": gzip.open, ".xz": lzma.open}


def read_texts(source: str, field: str = "text") -> Iterator[str]:
    """Every line's text ("-" is standard input); an empty line is an empty text, so that lines and results match."""
    path = Path(source)
    suffixes = [suffix for suffix in path.suffixes if suffix not in OPENERS]
    as_json = bool(suffixes) and suffixes[-1] in (".jsonl", ".ndjson")
    for number, line in enumerate(_lines(source), start=1):
        yield _json_text(line, field, source, number) if as_json else line


def chosen_texts(arguments: list[str] | None, file: str | None, field: str = "text") -> Iterator[str]:
    """The texts of a command: its arguments or its file, not both and not neither."""
    if bool(arguments) == bool(file):
        raise BertkitError("give texts as arguments or a file with --file (- for standard input), one of the two")
    return iter(arguments) if arguments else read_texts(file or "-", field)


def _lines(source: str) -> Iterator[str]:
    with _open(source) as stream:
        try:
            for number, raw in enumerate(stream, start=1):  # noqa: B007 - the number is read in the handler
                yield raw.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise BertkitError(f"{source}, line {number}: not UTF-8 ({error.reason}); convert it first") from None
        except (EOFError, OSError, lzma.LZMAError) as error:
            raise BertkitError(f"{source}: cannot be read to its end ({error}); is it complete?") from None


def _open(source: str) -> IO[bytes]:
    if source == "-":
        return sys.stdin.buffer
    path = Path(source)
    if not path.is_file():
        raise BertkitError(f"no file {source}; name a .txt or .jsonl file, or - for standard input")
    opener = OPENERS.get(path.suffix)
    return path.open("rb") if opener is None else opener(path, "rb")  # type: ignore[operator]


def _json_text(line: str, field: str, source: str, number: int) -> str:
    try:
        text = json.loads(line)[field]
    except (ValueError, KeyError, TypeError):
        raise BertkitError(f'{source}, line {number}: not a JSON object with the field "{field}"') from None
    if not isinstance(text, str):
        raise BertkitError(f'{source}, line {number}: the field "{field}" is not text')
    return text
