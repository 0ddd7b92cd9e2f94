"""Packed files for tests: what each ending means."""

import gzip
import lzma
from collections.abc import Callable

import pyarrow as pa

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}
