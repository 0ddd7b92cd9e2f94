"""Files on disk -> streams of bytes and numbered lines: which files a command means, what kind each is, how it is packed.

What enters: paths of files and folders. What leaves: files in a fixed order, and their bytes, unpacked on the way.
Memory stays bounded however large a file or a line is. What is written appears under its name when it is whole.
"""

import gzip
import importlib
import io
import lzma
import shutil
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, cast

from bertkit.errors import BertkitError
from bertkit.text.counted import agree, counted

Kind = Literal["txt", "jsonl", "parquet"]
KINDS: dict[str, Kind] = {
    ".txt": "txt",
    ".text": "txt",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
PACKED = (".gz", ".xz", ".zst")
# The list of a vocabulary and the report of a token store, each with a file that always lies beside it.
WRITTEN_BESIDE = {"vocab.txt": "tokenizer_config.json", "report.txt": "shard-00000.tokens.bin"}
# What a stream of a damaged or cut file raises; the zstd libraries raise errors of their own (see `unpacking_errors`).
READ_ERRORS: tuple[type[Exception], ...] = (EOFError, OSError, lzma.LZMAError, zlib.error)


def find_files(paths: Iterable[str | Path]) -> list[Path]:
    """The files that these paths mean: files as given, folders searched through, in an order that does not change."""
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        if given == "":
            raise BertkitError("the name of a file is empty; name files or folders, '.' for the current one")
        if path.is_dir():
            found |= dict.fromkeys(search_folder(path))
        elif path.exists():
            kind_of(path)
            found[path] = None
        else:
            raise BertkitError(f"no file or folder {path}; name a .txt, .jsonl or .parquet file, or a folder of them")
    return list(found)


def search_folder(folder: Path) -> list[Path]:
    """The files of text in a folder, by their names; others are told, hidden ones are not looked at."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not is_hidden(file, folder))
    inside = [file for file in files if is_text(file)]
    if not inside:
        raise BertkitError(f"{folder} holds no {', '.join(KINDS)} file (also .gz, .xz, .zst); name another folder")
    if others := Counter(file.suffix.lower() or "no ending" for file in files if not is_text(file)):
        endings = ", ".join(f"{count:,} {ending}" for ending, count in others.most_common(5))
        verb = agree(others.total(), "is", "are")
        warnings.warn(f"{counted(others.total(), 'other file')} in {folder} {verb} not read: {endings}", stacklevel=1)
    return inside


def is_text(file: Path) -> bool:
    """Whether a file found in a folder holds text, by its name, and is not one that bertkit wrote beside others."""
    beside = WRITTEN_BESIDE.get(file.name)
    return inner_suffix(file) in KINDS and not (beside and file.with_name(beside).exists())


def is_hidden(file: Path, folder: Path) -> bool:
    """Whether a file found in a folder, or a folder above it, is hidden."""
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def kind_of(path: Path) -> Kind:
    """txt, jsonl or parquet, by the name; what packs the file does not count."""
    suffix = inner_suffix(path)
    if suffix not in KINDS:
        raise BertkitError(
            f"{path} is no text by its ending; give a file that is {', '.join(KINDS)} (also .gz, .xz, .zst)"
        )
    return KINDS[suffix]


def inner_suffix(path: Path) -> str:
    """The ending of a name after the packing is taken off, in small letters."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in PACKED), "")


def open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked by its ending."""
    try:
        match path.suffix.lower():
            case ".gz":
                return cast(IO[bytes], gzip.open(path, "rb"))
            case ".xz":
                return lzma.open(path, "rb")
            case ".zst":
                return open_zstd(path)
        return path.open("rb")
    except OSError as error:
        raise BertkitError(f"{path} cannot be opened: {error.strerror or error}") from None


def open_zstd(path: Path) -> IO[bytes]:
    """A .zst file through the zstd library that is here: Python's own from 3.14 on, `zstandard`, or else pyarrow's."""
    library = zstd_library()
    if library is None:
        from pyarrow import input_stream  # heavy; it refuses what `zstd --long` made

        return io.BufferedReader(input_stream(path, compression="zstd"), 2**17)
    if library.__name__ != "zstandard":
        return cast(IO[bytes], library.open(path, "rb"))
    # By itself the package stops after the first frame and refuses windows that `zstd --long` makes.
    unpacker = library.ZstdDecompressor(max_window_size=2**31)
    return io.BufferedReader(unpacker.stream_reader(path.open("rb"), read_across_frames=True), 2**17)


def zstd_library() -> Any:
    """The module, or None."""
    for name in ("compression.zstd", "zstandard"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def unpacking_errors(path: Path) -> tuple[type[Exception], ...]:
    """What reading this file may raise when it is damaged or cut short."""
    if path.suffix.lower() == ".zst" and (library := zstd_library()) is not None:
        return (*READ_ERRORS, library.ZstdError)
    return READ_ERRORS


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the file's name when all went well and is gone when it did not."""
    aside = path.with_name(f".{path.name}.part")
    try:
        yield aside
        aside.replace(path)
    except OSError as error:
        raise BertkitError(f"cannot write {path}: {error.strerror or error}; choose another place") from error
    finally:
        with suppress(OSError):
            aside.unlink()


def open_seekable(path: Path) -> IO[bytes]:
    """Like `open_bytes` for formats that are read from their end: a packed file is unpacked to a temporary one."""
    stream = open_bytes(path)
    if path.suffix.lower() not in PACKED:
        return stream
    unpacked = tempfile.TemporaryFile()  # noqa: SIM115  (the caller closes it)
    try:
        with stream:
            shutil.copyfileobj(stream, unpacked, 2**20)
        unpacked.seek(0)
    except BaseException:
        unpacked.close()
        raise
    return cast(IO[bytes], unpacked)


def numbered_lines(stream: IO[bytes], limit: int) -> Iterator[tuple[int, bytes, bool]]:
    """Every line with its number and whether it is all of it: longer ones come in parts, cut at a space if possible."""
    number, rest, whole = 1, b"", True
    while read := stream.readline(limit - len(rest)):
        line = rest + read
        if line.endswith(b"\n") or len(line) < limit:
            yield number, line.rstrip(b"\r\n"), whole
            number, rest, whole = number + 1, b"", True
            continue
        cut = cut_point(line)
        yield number, line[:cut], False
        rest, whole = line[cut:], False
    if rest:
        yield number, rest, False


def cut_point(line: bytes) -> int:
    """Where to cut a line that is too long: after its last space, else before the last character, which may be half."""
    if (space := line.rfind(b" ", len(line) // 2)) >= 0:
        return space + 1
    cut = len(line) - 1
    while cut > len(line) - 4 and line[cut] & 0xC0 == 0x80:
        cut -= 1
    return cut
