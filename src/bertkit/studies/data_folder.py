"""The folder of real data: corpus/ with text and tasks/ with packed task folders; unpacked once into a cache.

What enters: a folder that holds tasks/NAME.tar.xz (or tasks/NAME/) and corpus/. What leaves: paths of plain files, and
a token store of held-out text made with a model's own tokenizer. Half-made work never counts: folders are renamed.
"""

import hashlib
import os
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bertkit.corpus.prepare.run import prepare
from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.tokenizer import Tokenizer

DATA, CACHE = "BERTKIT_DATA", "BERTKIT_CACHE"  # environment
PACKED = ("", ".xz", ".gz", ".zst")


@dataclass(frozen=True)
class DataFolder:
    """Where data comes from, and where what is made of it is kept."""

    root: Path
    cache: Path

    @classmethod
    def open(cls, root: str | Path | None = None, cache: str | Path | None = None) -> "DataFolder":
        """The folder named, else that of BERTKIT_DATA; one that is not there is refused."""
        named = str(root or os.environ.get(DATA, ""))
        if not named:
            raise BertkitError(f"no data folder is named: give --data FOLDER (with corpus/ and tasks/), or set {DATA}")
        if not (Path(named) / "tasks").is_dir() and not (Path(named) / "corpus").is_dir():
            raise BertkitError(f"{named} holds neither tasks/ nor corpus/; name the folder that holds them")
        return cls(Path(named), Path(cache) if cache else default_cache())

    def task_file(self, name: str) -> Path:
        """A file such as glue/SST-2/train.tsv, unpacked if need be."""
        folder, _, inside = name.partition("/")
        path = self.task_folder(folder) / inside
        if not path.is_file():
            raise BertkitError(f"tasks/{folder} has no file {inside}; see what the data folder should hold")
        return path

    def task_folder(self, name: str) -> Path:
        """A folder of tasks/, as it is or unpacked from its archive."""
        plain, archive = self.root / "tasks" / name, self.root / "tasks" / f"{name}.tar.xz"
        if plain.is_dir():
            return plain
        if not archive.is_file():
            raise BertkitError(f"{self.root / 'tasks'} has no {name}/ and no {archive.name}; name another data folder")
        return unpack(archive, self.cache / "tasks" / f"{name}-{_stamp(archive)}") / name

    def corpus_file(self, name: str) -> Path:
        """A file of corpus/, packed or not."""
        for ending in PACKED:
            path = self.root / "corpus" / f"{name}{ending}"
            if path.is_file():
                return path
        raise BertkitError(f"{self.root / 'corpus'} has no {name}, packed or not; name another data folder")

    def store(self, name: str, tokenizer: Tokenizer) -> TokenStore:
        """A corpus file as tokens of this tokenizer, prepared once."""
        source = self.corpus_file(name)
        folder = self.cache / "stores" / f"{name}-{_stamp(source)}-{tokenizer.fingerprint[:16]}"
        prepare([source], tokenizer, folder)  # finished before: nothing is done
        return TokenStore.open(folder, tokenizer)


def default_cache() -> Path:
    """BERTKIT_CACHE, or the user's own folder for such things."""
    if named := os.environ.get(CACHE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertkit"


def unpack(archive: Path, folder: Path) -> Path:
    """The archive's files in this folder; whoever is first makes it, and others find it whole."""
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
        try:
            with tarfile.open(archive) as packed:
                packed.extractall(aside, filter="data")
            if not folder.is_dir():
                aside.rename(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except (OSError, tarfile.TarError, EOFError) as error:
        if not folder.is_dir():  # else another process was faster
            raise BertkitError(f"{archive.name} cannot be unpacked into {folder.parent}: {error}") from None
    return folder


def _stamp(path: Path) -> str:
    """Another file under the same name gets another cache."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=6)).hexdigest()
