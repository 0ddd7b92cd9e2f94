"""Packed files for tests: what each ending means, and which of them this Python can read."""

import gzip
import lzma
from collections.abc import Callable

from bertkit.text.files import zstd_library

PACKERS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
if (zstd := zstd_library()) is not None:
    PACKERS[".zst"] = zstd.compress
